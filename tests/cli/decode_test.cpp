// `peal decode` as a user meets it: arguments, standard input, status.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "cli/peal.hpp"

namespace peal::test {
namespace {

const std::string kPut =
    "0001ff08 000ac503 00000008 00000000 00007f12 34567000 00240200 00000000 "
    "00001000 00130100 00007f00 00001000";
// A UC SEND Only of the public tests of scapy's RoCE layer.
const std::string kSend =
    "45010040 04784000 4011b4d5 c0a80007 c0a80007 c00012b7 002caca2 2460ffff 000000d3 00cf1710 "
    "4630818b e28935d9 0e9a9550 5401be88 5e500000 78f353f3";
const std::string kErrorTail = "00000000 02005104 09000ac5 0000bfd2";

// `script` with the command as $0.
Ended run_shell(const std::string& script) {
  Process process({"/bin/sh", "-c", script, PEAL_COMMAND_PATH});
  return ended(process);
}

void expect_decoded(const Ended& e, int status, const std::string& part) {
  EXPECT_EQ(e.status, status) << e.out << e.err;
  EXPECT_EQ(e.err, "");
  EXPECT_TRUE(contains(e.out, part)) << e.out;
}

TEST(Decode, TakesSeveralArgumentsOneOrTheStandardInput) {
  const Ended several = run_peal("decode wqe " + kPut);
  expect_decoded(several, 0, "WQE: RDMA_WRITE, index 511, QPN 0xac5, 48 bytes in 1 slot\n");
  expect_decoded(several, 0, "\nnothing wrong found\n");
  EXPECT_EQ(run_peal({"decode", "wqe", kPut}).out, several.out);
  EXPECT_EQ(run_shell("echo '" + kPut + "' | \"$0\" decode wqe -").out, several.out);
  EXPECT_EQ(run_shell("echo '" + kPut + "' | \"$0\" decode wqe - | cat").out, several.out);
}

TEST(Decode, ExitsWith3WhereSomethingIsWrong) {
  expect_decoded(run_peal("decode cqe " + kErrorTail), 3,
                 "\nwrong: local protection error (syndrome 0x04): ");
  expect_decoded(run_peal("decode wqe --qpn 0xac6 " + kPut), 3,
                 "\nwrong: qpn is 0xac5, not 0xac6;");
}

TEST(Decode, TakesWhatIsExpected) {
  expect_decoded(
      run_peal("decode wqe " + kPut +
               " --qpn 0xac5 --index 66047 --depth 256 --lkey 0x00130100 --rkey 2359808"),
      0, "511, slot 255 of 256");
  expect_decoded(run_peal("decode wqe " + kPut + " --index 512"), 3,
                 "wrong: wqe_index is 511, but that of index 512 is 512: ");
  expect_decoded(
      run_peal("decode wqe " + kPut + " --lkey 0x00011300"), 3,
      "lkey 0x00130100 is the expected 0x00011300 with its bytes swapped; mend: swap it");
  expect_decoded(run_peal("decode wqe " + kPut + " --rkey 0x00022400"), 3,
                 "rkey 0x00240200 is the expected 0x00022400 with its bytes swapped");
  expect_decoded(
      run_peal("decode cqe 00000000 00000000 08000ac5 01ff0001 --number 511 --entries 256"), 0,
      "note: CQE number 511 lies in entry 255 on lap 1, with owner 1: written\n");
  expect_decoded(
      run_peal("decode cqe 00000000 00000000 08000ac5 01ff0000 --number 511 --entries 256"), 0,
      "stale lap");
}

TEST(Decode, TakesWordsOfALittleEndianHost) {
  const std::string words = "decode cqe 0x00000000 0x04510002 0xc50a0009 0xd2bf0000";
  expect_decoded(run_peal(words), 3, "mend: decode with --words le if");
  EXPECT_EQ(run_peal(words + " --words le").out, run_peal("decode cqe " + kErrorTail).out);
  EXPECT_EQ(run_peal("decode cqe --words le64 0451000200000000 d2bf0000c50a0009").out,
            run_peal("decode cqe --words be " + kErrorTail).out);
}

TEST(Decode, TakesAPacketFromAnyOfItsHeadersOn) {
  const Ended guessed = run_peal("decode packet " + kSend);
  expect_decoded(guessed, 0, "packet: UC SEND Only, QPN 0xd3, PSN 13571856, 18 bytes\n");
  expect_decoded(guessed, 0, "\nnote: the bytes were taken to begin with an IP header;");
  const Ended told = run_peal("decode packet --from ip " + kSend);
  expect_decoded(told, 0, " icrc                  right\nnothing wrong found\n");
  EXPECT_EQ(run_shell("echo '" + kSend + "' | \"$0\" decode packet --from ip -").out, told.out);
  expect_decoded(run_peal("decode packet --from bth " + kSend.substr(63)), 0, "QPN 0xd3");
  expect_decoded(run_peal("decode packet --from ethernet 0102030405060708090a0b0c0800 " + kSend), 0,
                 "01:02:03:04:05:06");
  expect_decoded(run_peal("decode packet --from bth " + kSend), 3, "\nwrong: opcode 0x45 (RD)");
  expect_decoded(run_peal("decode packet " + kSend.substr(0, kSend.size() - 1) + "4"), 3,
                 "\nwrong: the ICRC is 78f353f4, but 78f353f3 is right; mend: ");
  expect_refusal({"decode", "packet", kSend, "--from", "udp"}, "--from must be one of");
  expect_refusal({"decode", "packet", kSend, "--qpn", "1"});
  expect_refusal({"decode", "packet", kErrorTail.substr(0, 8)}, "and not as 4");
}

TEST(Decode, RefusesWhatCannotBeDecodedInOneSentence) {
  for (const std::string kind : {"wqe", "cqe"}) {
    expect_refusal({"decode", kind}, "HEX");
    expect_refusal({"decode", kind, ""}, "empty");
    expect_refusal({"decode", kind, " "}, "no hex digits");
    expect_refusal({"decode", kind, "0"}, "'0' at character 1 is an odd number of hex digits");
    expect_refusal({"decode", kind, "00 0"}, "'0' at character 4");
    expect_refusal({"decode", kind, "00 zz"}, "'z' at character 4");
    expect_refusal({"decode", kind, "0000\n00\n0\xc3\xa9"}, "'\\xc3' at character 2 of line 3");
    expect_refusal({"decode", kind, "00"}, "and not as 1");
    expect_refusal({"decode", kind, kPut + kPut, "--words", "el"}, "--words");
    expect_refusal({"decode", kind, kPut, "--qpn", "0x1000000"}, "--qpn");
    expect_refusal({"decode", kind, kPut, "--qpn", "-1"}, "--qpn");
    expect_refusal({"decode", kind, kPut, "--junk"});
    expect_refusal({"decode", kind, "-"}, "no hex digits");  // /dev/null
  }
  expect_refusal({"decode"});
  expect_refusal({"decode", "junk"});
  expect_refusal({"decode", "wqe", kPut, "--depth", "100"}, "power of two");
  expect_refusal({"decode", "wqe", kPut, "--lkey", "0x100000000"}, "--lkey");
  expect_refusal({"decode", "wqe", kPut, "--index", "18446744073709551616"}, "--index");
  expect_refusal({"decode", "cqe", kErrorTail, "--number", "1"}, "--entries");
  expect_refusal({"decode", "cqe", kErrorTail, "--number", "1", "--entries", "3"}, "power of two");
  expect_refusal({"decode", "cqe", kPut + kPut + kErrorTail + kErrorTail}, "last 64");
}

TEST(Decode, RefusesMegabytes) {
  const Ended e = run_shell("head -c 10000000 /dev/zero | tr '\\0' 0 | \"$0\" decode wqe -");
  EXPECT_EQ(e.status, 2);
  EXPECT_EQ(e.out, "");
  EXPECT_EQ(e.err, "peal decode wqe: the dump has more than 1048576 characters\n");
}

TEST(Decode, ExplainsItselfWhenAsked) {
  for (const std::string arguments : {"decode --help", "decode wqe --help", "decode cqe --help"}) {
    const Ended e = run_peal(arguments);
    EXPECT_EQ(e.status, 0) << arguments;
    EXPECT_EQ(e.err, "") << arguments;
  }
  EXPECT_TRUE(contains(run_peal("decode wqe --help").out, "Exit status: "));
}

// docs/DECODE.md shows commands, each with its output behind it.
TEST(Decode, PrintsWhatItsPageShows) {
  std::ifstream page(PEAL_SOURCE_DIR "/docs/DECODE.md");
  int commands = 0;
  std::string command;
  std::string output;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("$ peal ")) {
      command = line.substr(7);
      output.clear();
    } else if (line == "```" && !command.empty()) {
      EXPECT_EQ(run_peal(command).out, output) << command;
      command.clear();
      ++commands;
    } else {
      output += line + "\n";
    }
  }
  EXPECT_EQ(commands, 5);
}

}  // namespace
}  // namespace peal::test
