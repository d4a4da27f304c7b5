// The command with --provider rdma_core. The libraries are stand-ins with software ConnectXs behind
// them, so that everything else is what would run with a NIC.
#include <fcntl.h>
#include <sys/socket.h>

#include "cli/peal.hpp"

namespace peal::test {
namespace {

// Environment, then the command.
Arguments with_stand_in(const Arguments& settings, const Arguments& arguments) {
  return Arguments{"/usr/bin/env", std::string("LD_LIBRARY_PATH=") + PEAL_STAND_IN_FOLDER} +
         settings + peal_command(arguments);
}

Ended run_device(const Arguments& settings, const Arguments& arguments) {
  Process process(with_stand_in(settings, arguments));
  return ended(process);
}

Ended run_device(const std::string& arguments, const Arguments& settings = {}) {
  return run_device(settings, words(arguments));
}

constexpr const char* kEthernet = "PEAL_STAND_IN_LINK_LAYER=ethernet";
constexpr const char* kLadder =
    "ladder --provider rdma_core --size 0,8,4096 --iters 100 --repeat 1 --region 1M ";

TEST(DeviceRun, ClimbsTheWholeLadderThroughTheSystemsLibraries) {
  const RowFile file;
  const Ended e = run_device(std::string(kLadder) + "--json " + file.path());
  EXPECT_EQ(e.status, 0) << e.err;
  const Rows rows = file.rows();
  ASSERT_EQ(rows.size(), 30u);
  for (const auto& row : rows) {
    EXPECT_EQ(row["provider"], "rdma_core");
    EXPECT_EQ(row["engine"], "device");
    EXPECT_EQ(row["kind"], "software") << "no device is on a bus here";
    EXPECT_EQ(row["device"], "mlx5_0");
    EXPECT_EQ(row["link"], "ib");
    EXPECT_TRUE(row["gid_index"].is_null());
    EXPECT_EQ(row["mtu"], 4096);
    EXPECT_EQ(row["handler"], "direct");
    EXPECT_EQ(row["fence_scope"], "system");
    EXPECT_EQ(row["validated"], true);
    EXPECT_EQ(row["puts"], row["wqes"]);
    EXPECT_EQ(row["total_bytes"],
              row["puts"].get<std::uint64_t>() * row["payload_bytes"].get<std::uint64_t>());
  }
}

TEST(DeviceRun, TakesWhatItsOptionsSay) {
  const RowFile file;
  const Ended e =
      run_device(std::string(kLadder) +
                     "--stages batch --submit peal --device mlx5_0,mlx5_1 --gid-index 3 --mtu 1024 "
                     "--traffic-class 104 --qp-timeout 14 --retry 3 --handler proxy --completion "
                     "tail --json " +
                     file.path(),
                 {kEthernet});
  EXPECT_EQ(e.status, 0) << e.err;
  const Rows rows = file.rows();
  ASSERT_EQ(rows.size(), 3u);
  const auto& row = rows[1];
  EXPECT_EQ(row["link"], "roce_v2");
  EXPECT_EQ(row["gid_index"], 3);
  EXPECT_EQ(row["gid"], "fe80::1");
  EXPECT_EQ(row["gid_type"], "roce_v2");
  EXPECT_EQ(row["mtu"], 1024);
  EXPECT_EQ(row["traffic_class"], 104);
  EXPECT_EQ(row["qp_timeout"], 14);
  EXPECT_EQ(row["retry"], 3);
  EXPECT_EQ(row["handler"], "proxy");
}

TEST(DeviceRun, ChoosesRoceV2ByIpv4WhereNothingIsSaid) {
  const RowFile file;
  const Ended e =
      run_device(std::string(kLadder) + "--stages serial --json " + file.path(), {kEthernet});
  EXPECT_EQ(e.status, 0) << e.err;
  ASSERT_EQ(file.rows().size(), 6u);
  EXPECT_EQ(file.rows()[0]["gid_index"], 5);
  EXPECT_EQ(file.rows()[0]["gid"], "::ffff:192.0.2.1");
}

TEST(DeviceRun, IsWhatDevicesOpens) {
  const Ended e =
      run_device("devices --provider rdma_core --device mlx5_1 --handler proxy", {kEthernet});
  EXPECT_EQ(e.status, 0) << e.err;
  EXPECT_EQ(e.out,
            "mlx5_1 (behind the system's RDMA libraries no device)\n"
            "  port        1, active, GID 5 ::ffff:192.0.2.2 (roce_v2), MTU 4096\n"
            "  send queue  up to 32768 slots\n"
            "  handler     proxy requested, proxy resolved: requested\n");
}

TEST(DeviceRun, SaysThatADeviceTellsNoCounters) {
  const Ended e = run_device(std::string(kLadder) + "--stages serial --counters");
  EXPECT_EQ(e.status, 0) << e.err;
  EXPECT_TRUE(contains(e.err, "--counters: a device does not tell what it counted")) << e.err;
  EXPECT_FALSE(contains(e.err, "counters stage=")) << e.err;
}

// Each a sentence and status 5: the machine lacks something.
TEST(DeviceRun, SaysWhatTheMachineLacks) {
  const auto expect = [](const std::string& options, const Arguments& settings,
                         const std::string& part) {
    const Ended e = run_device(std::string(kLadder) + options, settings);
    EXPECT_EQ(e.status, 5) << part;
    EXPECT_EQ(e.out, "") << part;
    EXPECT_TRUE(contains(e.err, part)) << e.err;
  };
  const auto refuse = [](const std::string& what) { return "PEAL_STAND_IN_REFUSE=" + what; };
  expect("--device mlx5_7", {}, "there is no RDMA device 'mlx5_7'; there are: mlx5_0, mlx5_1");
  expect("--ib-port 2", {}, "querying port 2 of mlx5_0");
  expect("--gid-index 0", {kEthernet}, "port 1 of mlx5_0 has no GID at index 0 of 8");
  expect("--gid-type ib", {kEthernet}, "port 1 of mlx5_0 has no ib GID in 8 slots");
  expect("--gid-index 4 --gid-type roce_v2", {kEthernet}, "is roce_v1, not roce_v2");
  expect("", {refuse("open_device=95")}, "or its driver was built without DevX");
  expect("", {refuse("devx_alloc_uar=12")}, "PF_LOG_BAR_SIZE");
  expect("", {refuse("reg_mr=12")}, "RLIMIT_MEMLOCK is ");
  expect("", {kEthernet, refuse("create_ah=110")},
         "asking for the Ethernet address of the peer ::ffff:192.0.2.1");
}

// As containers have it.
TEST(DeviceRun, NamesASmallLimitOnLockedMemory) {
  const auto under_64_kib = [](const std::string& arguments) {
    Process process({"/bin/sh", "-c",
                     "ulimit -l 64; LD_LIBRARY_PATH=" + std::string(PEAL_STAND_IN_FOLDER) +
                         " PEAL_STAND_IN_REFUSE=reg_mr=12 exec " + PEAL_COMMAND_PATH + " " +
                         arguments});
    return ended(process);
  };
  const Ended device = under_64_kib(kLadder);
  EXPECT_EQ(device.status, 5);
  EXPECT_TRUE(contains(device.err, "RLIMIT_MEMLOCK is 65536 bytes: raise it with `ulimit -l"))
      << device.err;
  // Software pins nothing.
  const Ended software = under_64_kib("ladder --stages serial --size 8 --iters 10 --repeat 1");
  EXPECT_EQ(software.status, 0) << software.err;
}

TEST(DeviceRun, SaysWhichLibraryIsMissing) {
  Process process(Arguments{"/usr/bin/env", "LD_LIBRARY_PATH=/nonexistent"} +
                  peal_command(words(kLadder)));
  const Ended e = ended(process);
  EXPECT_EQ(e.status, 5);
  EXPECT_EQ(e.out, "");
  // A machine that has the libraries has no device; any other lacks them.
  EXPECT_TRUE(contains(e.err, "libibverbs.so.1") || contains(e.err, "RDMA device")) << e.err;
}

TEST(DeviceRun, RefusesWhatOnlySoftwareDoes) {
  for (const char* option : {"--engine threads", "--nic null", "--order strict", "--dbsrc dbr",
                             "--rule wqe-index=off", "--fault uarfail"}) {
    expect_refusal(words(std::string("ladder --provider rdma_core ") + option),
                   "is of the software ConnectX");
  }
  expect_refusal(words("ladder --provider efa"), "--provider must be one of software, rdma_core");
  expect_refusal(words("ladder --mtu 1500"), "--mtu");
  expect_refusal(words("ladder --qp-timeout 0"), "--qp-timeout");
  expect_refusal(words("ladder --retry 8"), "--retry");
  expect_refusal(words("ladder --traffic-class 256"), "--traffic-class");
  expect_refusal(words("ladder --gid-type roce"), "--gid-type");
}

TEST(DeviceRun, TakesThePartitionKeyAtTheIndexAskedFor) {
  const char* second = "PEAL_STAND_IN_PKEYS=0,0xffff,0x8001";
  const auto run = [&](const std::string& index) {
    const RowFile file;
    const Ended e = run_device(
        std::string(kLadder) + "--stages serial --pkey-index " + index + " --json " + file.path(),
        {second});
    return std::pair{e, file.rows()};
  };
  for (const auto& [index, key] : {std::pair{1, "0xffff"}, std::pair{2, "0x8001"}}) {
    const auto [e, rows] = run(std::to_string(index));
    EXPECT_EQ(e.status, 0) << e.err;
    ASSERT_EQ(rows.size(), 6u);
    EXPECT_EQ(rows[0]["pkey_index"], index);
    EXPECT_EQ(rows[0]["pkey"], key);
  }
  for (const std::string index : {"0", "3"}) {
    const auto [e, rows] = run(index);
    EXPECT_EQ(e.status, 5) << e.err;
    EXPECT_TRUE(contains(e.err, "port 1 of mlx5_0 has no partition key at index " + index))
        << e.err;
  }
  expect_refusal(words("ladder --pkey-index 65536"), "--pkey-index");
}

// Two processes, each with a device of its own.
struct DevicePair {
  Ended server;
  Ended client;
  Rows rows;
};

DevicePair run_device_pair(const std::string& client, const std::string& server,
                           const Arguments& settings) {
  int fds[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  const auto end = [&](int i) {
    return settings + Arguments{"PEAL_STAND_IN_FD=" + std::to_string(fds[i]),
                                "PEAL_STAND_IN_NUMBER=" + std::to_string(i + 1)};
  };
  DevicePair pair;
  Process listening(
      with_stand_in(end(1), words("server --bind 127.0.0.1 --port 0 --once " + server)));
  EXPECT_TRUE(listening.wait_for_out("\n")) << listening.err();
  const std::string out = listening.out();
  const std::string port = out.substr(out.find("port ") + 5);
  const RowFile file;
  Process sending(
      with_stand_in(end(0), Arguments{"client", "127.0.0.1", "--port",
                                      port.substr(0, port.size() - 1), "--json", file.path()} +
                                words(client)));
  ::close(fds[0]);
  ::close(fds[1]);
  pair.client = ended(sending);
  pair.server = ended(listening);
  pair.rows = file.rows();
  return pair;
}

TEST(DeviceRun, JoinsTwoProcesses) {
  const DevicePair pair = run_device_pair(
      "--provider rdma_core --size 4096 --iters 200 --repeat 1 --region 1M --mtu 2048",
      "--provider rdma_core --device mlx5_1 --gid-index 5", {kEthernet});
  EXPECT_EQ(pair.client.status, 0) << pair.client.err;
  EXPECT_EQ(pair.server.status, 0) << pair.server.err;
  EXPECT_TRUE(contains(pair.server.out, "all payloads validated")) << pair.server.out;
  ASSERT_EQ(pair.rows.size(), 10u);
  EXPECT_EQ(pair.rows[0]["device"], "mlx5_0");
  EXPECT_EQ(pair.rows[0]["mtu"], 2048);
}

TEST(DeviceRun, EndsWhereTheEndsGidsAreOfTwoTypes) {
  const DevicePair pair =
      run_device_pair("--provider rdma_core --size 8 --iters 10 --repeat 1 --gid-index 4",
                      "--provider rdma_core --gid-index 5", {kEthernet});
  EXPECT_EQ(pair.client.status, 5) << pair.client.err;
  EXPECT_EQ(pair.server.status, 5) << pair.server.err;
  EXPECT_TRUE(contains(pair.client.err, "is of type roce_v2, the peer's of type roce_v1"))
      << pair.client.err;
  EXPECT_TRUE(pair.rows.empty());
}

TEST(DeviceRun, EndsWhereTheEndsAreOfTwoPartitions) {
  const auto run = [](const std::string& client, const std::string& server) {
    return run_device_pair(
        "--provider rdma_core --stages serial --submit peal --size 8 --iters 10 "
        "--repeat 1 --pkey-index " +
            client,
        "--provider rdma_core --pkey-index " + server,
        {"PEAL_STAND_IN_PKEYS=0xffff,0x8001,0x0001"});
  };
  const DevicePair two = run("0", "1");
  EXPECT_EQ(two.client.status, 5) << two.client.err;
  EXPECT_EQ(two.server.status, 5) << two.server.err;
  EXPECT_TRUE(contains(two.client.err,
                       "this end's partition key, at index 1, is 0x8001, the peer's 0xffff"))
      << two.client.err;
  EXPECT_TRUE(two.rows.empty());
  const DevicePair limited = run("2", "2");
  EXPECT_EQ(limited.client.status, 5) << limited.client.err;
  EXPECT_TRUE(contains(limited.client.err, "limited members")) << limited.client.err;
  // A full member hears a limited one.
  const DevicePair heard = run("1", "2");
  EXPECT_EQ(heard.client.status, 0) << heard.client.err;
  EXPECT_EQ(heard.server.status, 0) << heard.server.err;
}

TEST(DeviceRun, NamesAPathParameterInWhichTheEndsDiffer) {
  const DevicePair pair =
      run_device_pair("--provider rdma_core --size 8 --iters 10 --repeat 1 --traffic-class 8",
                      "--provider rdma_core --traffic-class 104", {});
  EXPECT_EQ(pair.client.status, 2) << pair.client.err;
  EXPECT_TRUE(contains(pair.client.err, "traffic-class")) << pair.client.err;
}

}  // namespace
}  // namespace peal::test
