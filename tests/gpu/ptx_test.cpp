// The PTX of each ordering point, as nvcc emitted it: read, not run, so that no GPU is needed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#ifndef PEAL_PTX_FILE
#define PEAL_PTX_FILE ""  // there was no nvcc
#endif

namespace peal {
namespace {

using Instructions = std::vector<std::string>;

// Of each function, the instructions on memory in their order, without their operands.
std::map<std::string, Instructions> functions_of(const std::string& path) {
  std::map<std::string, Instructions> functions;
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::string name;
  for (std::string line; std::getline(file, line);) {
    const std::string entry = ".visible .entry ";
    if (line.starts_with(entry)) {
      name = line.substr(entry.size(), line.find('(') - entry.size());
      functions[name];
      continue;
    }
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word.starts_with("@")) words >> word;
    if (word.ends_with(";")) word.pop_back();
    for (const char* kind :
         {"ld.", "st.", "atom.", "red.", "fence.", "membar.", "cp.", "mbarrier."}) {
      if (word.starts_with(kind) && !word.starts_with("ld.param")) functions[name].push_back(word);
    }
  }
  return functions;
}

class Ptx : public testing::Test {
 protected:
  void SetUp() override {
    const std::string file = PEAL_PTX_FILE;
    if (file.empty()) {
      const char* required = std::getenv("PEAL_REQUIRE_CUDA");
      ASSERT_TRUE(required == nullptr || *required == '\0')
          << "there was no nvcc, which is required";
      GTEST_SKIP() << "there was no nvcc when this was built";
    }
    functions_ = functions_of(file);
    ASSERT_FALSE(functions_.empty());
  }

  // What the function of an ordering point does at each scope; `@` stands for the scope. What it
  // returns is stored by st.global.
  void expect(const std::string& point, const Instructions& expected) {
    for (const char* scope : {"cta", "gpu", "sys"}) {
      Instructions of_scope = expected;
      for (std::string& i : of_scope) {
        const std::size_t at = i.find('@');
        if (at != std::string::npos) i.replace(at, 1, scope);
      }
      const std::string name = point + "_" + scope;
      ASSERT_TRUE(functions_.contains(name)) << name;
      EXPECT_EQ(functions_[name], of_scope) << name;
      seen_.push_back(name);
    }
  }

  std::map<std::string, Instructions> functions_;
  Instructions seen_;
};

TEST_F(Ptx, EachOrderingPointIsWhatItSaysAtItsScope) {
  const Instructions mmio = {"fence.acq_rel.@", "st.mmio.relaxed.sys.global.b64"};
  expect("store_dbrec_after_wqes", {"st.release.@.b32"});                                   // MO-1
  expect("ring_doorbell_after_dbrec", mmio);                                                // MO-2
  expect("ring_doorbell_after_wqes", mmio);                                                 // MO-3
  expect("load_cqe_owner_acquire", {"ld.acquire.@.L1::no_allocate.b32", "st.global.u32"});  // MO-4
  expect("mark_ready_release", {"st.release.@.b64"});                                       // MO-5
  expect("load_mark_acquire", {"ld.acquire.@.b64", "st.global.u64"});
  expect("add_pending_acq_rel", {"atom.acq_rel.@.add.u64", "st.global.u64"});  // MO-6
  expect("subtract_pending_acq_rel", {"atom.acq_rel.@.add.u64", "st.global.u64"});
  expect("load_pending_acquire", {"ld.acquire.@.b64", "st.global.u64"});
  expect("store_ready_release", {"st.release.@.b64"});  // MO-7
  expect("load_ready_acquire", {"ld.acquire.@.b64", "st.global.u64"});
  expect("advance_completed_release", {"red.release.@.max.u64"});  // MO-8
  expect("load_completed_acquire", {"ld.acquire.@.b64", "st.global.u64"});
  expect("try_lock_acquire", {"atom.acquire.@.exch.b32", "st.global.u64"});  // MO-9
  expect("unlock_release", {"st.release.@.b32"});
  expect("latch_release", {"atom.release.@.cas.b64"});  // MO-10
  expect("load_latch_acquire", {"ld.acquire.@.b64", "st.global.u64"});
  expect("store_proxy_pi_release", {"st.release.@.b64"});                // MO-11
  expect("load_signal_acquire", {"ld.acquire.@.b64", "st.global.u64"});  // MO-12
  expect("load_count_acquire", {"ld.acquire.@.b32", "st.global.u64"});   // MO-14, MO-15
  expect("store_count_release", {"st.release.@.b32"});
  expect("add_count_release", {"red.release.@.add.u32"});
  // All that there are.
  std::size_t points = 0;
  for (const auto& [name, instructions] : functions_) {
    points += name.ends_with("_cta") || name.ends_with("_gpu") || name.ends_with("_sys") ? 1 : 0;
  }
  EXPECT_EQ(seen_.size(), points);
}

TEST_F(Ptx, TheNicsEndsAreAtSystemScope) {
  const Instructions fence = {"fence.acq_rel.sys"};
  EXPECT_EQ(functions_["acquire_doorbell"], fence);     // MO-2, MO-3
  EXPECT_EQ(functions_["fence_before_atomic"], fence);  // MO-12
  EXPECT_EQ(functions_["acquire_tables"], fence);       // MO-16
  EXPECT_EQ(functions_["say_epoch_before_look"],
            (Instructions{"st.relaxed.sys.b64", "fence.sc.sys"}));
  EXPECT_EQ(functions_["answer_epoch_release"], (Instructions{"st.release.sys.b64"}));
}

// MO-17: a proxy fence between what was acquired and the load, and the store whole, not only its
// reading (.read), which frees its buffer, before the release.
TEST_F(Ptx, ABulkCopyIsBetweenItsAcquireAndItsRelease) {
  EXPECT_EQ(functions_["bulk_begin"],
            (Instructions{"mbarrier.init.shared::cta.b64", "fence.mbarrier_init.release.cluster",
                          "fence.proxy.async"}));
  EXPECT_EQ(functions_["bulk_copy"],
            (Instructions{"ld.acquire.cta.b32", "fence.proxy.async.global",
                          "mbarrier.arrive.expect_tx.shared::cta.b64",
                          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes",
                          "mbarrier.try_wait.parity.shared::cta.b64",
                          "cp.async.bulk.global.shared::cta.bulk_group",
                          "cp.async.bulk.commit_group", "cp.async.bulk.wait_group.read",
                          "cp.async.bulk.wait_group", "red.release.cta.add.u32"}));
}

TEST_F(Ptx, AWqeSegmentIsOneStoreOf16Bytes) {
  EXPECT_EQ(functions_["store_wqe_segment"], (Instructions{"st.v2.b64"}));
}

// From the last WQE store on.
Instructions tail_of(const Instructions& all) {
  std::size_t from = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] == "st.v2.b64") from = i + 1;
  }
  return {all.begin() + static_cast<std::ptrdiff_t>(from), all.end()};
}

TEST_F(Ptx, ASubmissionHasTwoReleasePoints) {
  const Instructions counted = {"ld.global.u64", "st.global.u64"};      // the doorbells, of its own
  Instructions expected = {"st.relaxed.sys.b64", "st.relaxed.sys.b64",  // ready, rung
                           "st.release.sys.b32", "fence.acq_rel.sys",
                           "st.mmio.relaxed.sys.global.b64"};
  expected.insert(expected.end(), counted.begin(), counted.end());
  EXPECT_EQ(tail_of(functions_["submit_record_ring"]), expected);
}

TEST_F(Ptx, OneThatRingsOnlyHasOneAndStoresNoRecord) {
  const Instructions expected = {"st.relaxed.sys.b64", "st.relaxed.sys.b64",  // ready, rung
                                 "fence.acq_rel.sys",  "st.mmio.relaxed.sys.global.b64",
                                 "ld.global.u64",      "st.global.u64"};
  EXPECT_EQ(tail_of(functions_["submit_ring_only"]), expected);
  for (const std::string& i : functions_["submit_ring_only"]) {
    EXPECT_EQ(i.find("b32"), std::string::npos) << i;  // a record is the one word of 32 bits
  }
}

TEST_F(Ptx, TheOriginalHasThree) {
  const Instructions expected = {"st.relaxed.sys.b64",
                                 "st.relaxed.sys.b64",
                                 "fence.acq_rel.sys",
                                 "st.mmio.relaxed.sys.global.b64",
                                 "st.release.sys.b32",
                                 "fence.acq_rel.sys",
                                 "st.mmio.relaxed.sys.global.b64",
                                 "ld.global.u64",
                                 "st.global.u64"};
  EXPECT_EQ(tail_of(functions_["submit_ring_record_ring"]), expected);
}

}  // namespace
}  // namespace peal
