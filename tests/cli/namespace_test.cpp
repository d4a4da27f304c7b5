// --link roce between two network namespaces: interfaces of their own, joined by a cable that can
// be cut. Needs root; what it makes is gone with the processes that hold it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "cli/peal.hpp"

namespace peal::test {
namespace {

namespace fs = std::filesystem;

// Two namespaces, each with one end of a veth pair: e0, with .1 or .2 of one IPv4 and one IPv6
// network. Or why_not.
class Cable {
 public:
  Cable() {
    if (::geteuid() != 0) {
      why_not_ = "network namespaces need root";
      return;
    }
    for (auto& holder : holders_) {
      holder =
          std::make_unique<Process>(Arguments{"/usr/bin/env", "unshare", "-n", "sleep", "300"});
      if (!in_own_namespace(holder->pid())) {
        why_not_ = "no network namespace can be made here: " + holder->err();
        return;
      }
    }
    if (!ip(0, "link add e0 type veth peer name e0 netns " + pid_of(1))) return;
    for (std::size_t end = 0; end < 2; ++end) {
      const std::string host = std::to_string(end + 1);
      if (!ip(end, "address add 10.77.0." + host + "/24 dev e0") ||
          !ip(end, "address add fd77::" + host + "/64 dev e0 nodad") ||
          !ip(end, "link set e0 up")) {
        return;
      }
    }
  }

  const std::string& why_not() const { return why_not_; }

  bool ip(std::size_t end, const std::string& arguments) {
    Process process(in(end, Arguments{"ip"} + words(arguments)));
    if (process.wait() == 0) return true;
    why_not_ = "ip " + arguments + ": " + process.err();
    return false;
  }

  Arguments in(std::size_t end, const Arguments& command) const {
    return Arguments{"/usr/bin/env", "nsenter", "-t", pid_of(end), "-n"} + command;
  }

 private:
  std::string pid_of(std::size_t end) const { return std::to_string(holders_[end]->pid()); }

  static bool in_own_namespace(pid_t pid) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (std::chrono::steady_clock::now() < deadline) {
      std::error_code error;
      const fs::path its = fs::read_symlink("/proc/" + std::to_string(pid) + "/ns/net", error);
      if (error) return false;
      if (its != fs::read_symlink("/proc/self/ns/net", error)) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  std::array<std::unique_ptr<Process>, 2> holders_;
  std::string why_not_;
};

struct RoceNamespaces : ::testing::Test {
  void SetUp() override {
    if (!cable.why_not().empty()) GTEST_SKIP() << cable.why_not();
  }
  // Of a server that waits in the second namespace.
  std::unique_ptr<Process> serve(const std::string& arguments) const {
    auto server = std::make_unique<Process>(
        cable.in(1, peal_command(words("server --bind :: --once --link roce " + arguments))));
    EXPECT_TRUE(server->wait_for_out("\n")) << server->err();
    return server;
  }
  std::unique_ptr<Process> put(const std::string& address, const std::string& arguments,
                               ProcessOptions options = {}) const {
    return std::make_unique<Process>(
        cable.in(0, peal_command(words("client " + address + " --link roce " + arguments))),
        options);
  }
  // The rows of a run that both ends found to be right.
  Rows run(const std::string& address) const {
    const auto server = serve("");
    const RowFile file;
    const auto client = put(address,
                            "--stages batch --submit peal --size 300,65536 --iters 60 "
                            "--repeat 1 --region 4M --json " +
                                file.path());
    EXPECT_EQ(client->wait(), 0) << client->err();
    EXPECT_EQ(server->wait(), 0) << server->err();
    EXPECT_EQ(client->err(), "");
    return file.rows();
  }

  Cable cable;
};

TEST_F(RoceNamespaces, ProgramTheMtuThatBothInterfacesCarry) {
  struct Case {
    const char* mtus[2];
    std::uint32_t programmed;
  };
  for (const Case& c :
       {Case{{"1500", "1500"}, 1024}, Case{{"1500", "9000"}, 1024}, Case{{"9000", "9000"}, 4096}}) {
    for (std::size_t end = 0; end < 2; ++end) {
      ASSERT_TRUE(cable.ip(end, std::string("link set e0 mtu ") + c.mtus[end])) << cable.why_not();
    }
    for (const auto& [address, gid] :
         {std::pair{"10.77.0.2", "::ffff:10.77.0.1"}, {"fd77::2", "fd77::1"}}) {
      SCOPED_TRACE(std::string(address) + " " + c.mtus[0] + " " + c.mtus[1]);
      const Rows rows = run(address);
      ASSERT_EQ(rows.size(), 2u);
      for (const auto& row : rows) {
        EXPECT_EQ(row["mtu"], c.programmed);
        EXPECT_EQ(row["gid"], gid);
        EXPECT_EQ(row["gid_type"], "roce_v2");
        EXPECT_EQ(row["validated"], true);
      }
    }
  }
}

TEST_F(RoceNamespaces, BothEndsEndWhenTheCableIsCut) {
  for (const std::size_t end : {std::size_t{0}, std::size_t{1}}) {
    const auto server = serve("--deadline 2");
    const auto client =
        put("10.77.0.2",
            "--size 64 --iters 1000000000 --repeat 1 --region 1M --deadline 2 --qp-timeout 16",
            on_terminal());
    ASSERT_TRUE(client->wait_for_err(kTimedTraffic)) << client->err();
    ASSERT_TRUE(cable.ip(end, "link set e0 down")) << cable.why_not();
    EXPECT_EQ(client->wait(), 4) << client->err();
    EXPECT_EQ(server->wait(), 4) << server->err();
    EXPECT_EQ(client->out(), "");
    // In a wait for a CQE, or between two segments of the run in one for the peer's message.
    EXPECT_TRUE(contains(client->err(), "transport retry counter exceeded") ||
                contains(client->err(), "no completion within") ||
                contains(client->err(), "peal client: waited "))
        << client->err();
    EXPECT_TRUE(contains(server->err(), "client 1: waited ")) << server->err();
    ASSERT_TRUE(cable.ip(end, "link set e0 up")) << cable.why_not();
  }
}

}  // namespace
}  // namespace peal::test
