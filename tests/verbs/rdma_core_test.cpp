// The table over libraries that are loaded at run time.
#include "verbs/rdma_core.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "bringup/parts.hpp"
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

// By the PCI device that the kernel names, its own or the one that it is a part of.
TEST(RdmaCore, KnowsADeviceOnABusFromSoftware) {
  const Folder folder;
  const fs::path pci = folder.path / "devices" / "0000:1b:00.0";
  const fs::path part = pci / "mlx5_core.sf.2";
  fs::create_directories(part);
  const auto is_hardware = [&](const fs::path& device, const std::string& vendor) {
    const fs::path entry = folder.path / "mlx5_0";
    fs::remove_all(entry);
    fs::create_directory(entry);
    fs::create_directory_symlink(device, entry / "device");
    std::ofstream(pci / "vendor") << vendor << "\n";
    verbs::RdmaCore verbs(PEAL_STAND_IN_FOLDER);
    ibv_device made_up{};
    entry.string().copy(made_up.ibdev_path, sizeof made_up.ibdev_path - 1);
    ibv_context context{};
    context.device = &made_up;
    return verbs.is_hardware(&context);
  };
  EXPECT_TRUE(is_hardware(pci, "0x15b3"));
  EXPECT_TRUE(is_hardware(part, "0x15b3"));
  EXPECT_FALSE(is_hardware(pci, "0x8086"));
  EXPECT_FALSE(is_hardware(folder.path / "nowhere", "0x15b3"));
}

// `peal devices --check` has a list of its own, with the release that each came with.
TEST(RdmaCore, AsksForNoFunctionThatTheBringUpListDoesNotKnow) {
  std::set<std::string> known;
  bringup::Machine machine;
  machine.load = [&](const std::string&, const std::vector<std::string>& symbols) {
    known.insert(symbols.begin(), symbols.end());
    return bringup::Library{};
  };
  bringup::check_libraries(machine);
  std::ifstream file(PEAL_SOURCE_DIR "/src/verbs/rdma_core.cpp");
  const std::string source{std::istreambuf_iterator<char>(file), {}};
  std::set<std::string> asked;
  const std::regex find("\\.find\\(f\\.\\w+, \"(\\w+)\"\\)");
  for (std::sregex_iterator m(source.begin(), source.end(), find), end; m != end; ++m) {
    asked.insert((*m)[1]);
  }
  EXPECT_GT(asked.size(), 20u);
  EXPECT_EQ(asked, known);
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
