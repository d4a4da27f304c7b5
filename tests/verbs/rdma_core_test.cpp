// The table over libraries that are loaded at run time.
#include "verbs/rdma_core.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>

#include "host/host_fixture.hpp"
#include "peal/host/rdma_core.hpp"

namespace peal::test {
namespace {

namespace fs = std::filesystem;

// A folder that goes with the test.
struct Folder {
  Folder() {
    std::string name = ::testing::TempDir() + "peal_libraries_XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  fs::path path;
};

TEST(RdmaCore, OpensADeviceThroughTheLibrariesOfAFolder) {
  const Context context = Context::open(rdma_core(nullptr, PEAL_STAND_IN_FOLDER));
  EXPECT_EQ(context.device_name(), "mlx5_0");
  EXPECT_FALSE(context.is_hardware());
  QueuePair qp = QueuePair::create(context);
  QueuePair peer = QueuePair::create(context);
  qp.connect(peer.address());
  EXPECT_EQ(qp.state(), QueuePairState::kRts);
}

TEST(RdmaCore, SaysWhatIsWrongWithALibrary) {
  const Folder folder;
  const auto error = [&] { return error_of([&] { rdma_core(nullptr, folder.path); }); };
  EXPECT_EQ(error().code(), ENOENT);
  EXPECT_TRUE(says(error(), "loading libibverbs.so.1: ")) << error().what();
  EXPECT_TRUE(says(error(), "ibverbs-providers")) << error().what();

  // One without the functions that are asked for.
  const fs::path stand_ins = PEAL_STAND_IN_FOLDER;
  fs::copy_file(stand_ins / "libibverbs.so.1", folder.path / "libibverbs.so.1");
  fs::copy_file(stand_ins / "libibverbs.so.1", folder.path / "libmlx5.so.1");
  EXPECT_EQ(error().code(), ENOSYS);
  EXPECT_TRUE(says(error(), "libmlx5.so.1 has no mlx5dv_open_device: it is older"))
      << error().what();
}

}  // namespace
}  // namespace peal::test
