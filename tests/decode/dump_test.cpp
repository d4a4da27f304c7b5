#include "decode/dump.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>

#include "support/scale.hpp"

namespace peal::decode {
namespace {

const Bytes kSixteen = {0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x51, 0x04,
                        0x09, 0x00, 0x0a, 0xc5, 0x00, 0x00, 0xbf, 0xd2};

TEST(Dump, ReadsTheSameBytesInEveryFormThatIsPrinted) {
  const std::string forms[] = {
      "000000000000510409000ac50000bfd2",
      "000000000000510409000AC50000BFD2",
      "00000000 00005104 09000ac5 0000bfd2",
      "00000000\n00005104\n09000ac5\n0000bfd2\n",
      "\t00000000\r\n00005104  09000ac5\r\n0000bfd2",
      "0x00000000, 0x00005104, 0X09000ac5, 0x0000bfd2",
      "00:00:00:00:00:00:51:04:09:00:0a:c5:00:00:bf:d2",
      "00 00 00 00 00 00 51 04 09 00 0a c5 00 00 bf d2",
      // As the kernel and DPDK print it, a line and cut in two.
      "00000030: 00 00 00 00 00 00 51 04 09 00 0a c5 00 00 bf d2",
      "00000030: 00 00 00 00 00 00 51 04 09 00 0A C5 00 00 BF D2 | ......Q.........",
      "0000: 00 00 00 00 00 00 51 04\n0008: 09 00 0a c5 00 00 bf d2",
      // hexdump -C
      "00000030  00 00 00 00 00 00 51 04  09 00 0a c5 00 00 bf d2  |......Q.........|\n00000040\n",
      // gdb: x/2xw would need --words le, x/8xb does not.
      "0x7ffff7f3a000:\t0x00\t0x00\t0x00\t0x00\t0x00\t0x00\t0x51\t0x04\n"
      "0x7ffff7f3a008:\t0x09\t0x00\t0x0a\t0xc5\t0x00\t0x00\t0xbf\t0xd2\n",
  };
  for (const std::string& form : forms) {
    const Dump dump = parse_dump(form);
    EXPECT_EQ(dump.error, "") << form;
    EXPECT_EQ(dump.bytes, kSixteen) << form;
  }
}

TEST(Dump, RefusesWithTheCharacterAndItsPlace) {
  const struct {
    std::string text;
    std::string error;
  } cases[] = {
      {"", "the dump holds no hex digits"},
      {" \n,:", "the dump holds no hex digits"},
      {"0",
       "'0' at character 1 is an odd number of hex digits: write two for each byte, leading "
       "zeros too"},
      {"0011 223",
       "'223' at character 6 is an odd number of hex digits: write two for each byte, leading "
       "zeros too"},
      {"00\n0x123",
       "'123' at character 1 of line 2 is an odd number of hex digits: write two for each byte, "
       "leading zeros too"},
      {"123456789012345678901",
       "'12345678901234567890...' at character 1 is an odd number of hex digits: write two for "
       "each byte, leading zeros too"},
      {"00g0", "'g' at character 3 is neither a hex digit nor a separator"},
      {"00 0g", "'g' at character 5 is neither a hex digit nor a separator"},
      {"00\n00 -1", "'-' at character 4 of line 2 is neither a hex digit nor a separator"},
      {std::string("00\0", 3), "'\\x00' at character 3 is neither a hex digit nor a separator"},
      {"\xff", "'\\xff' at character 1 is neither a hex digit nor a separator"},
      {"0x", "0x at character 1 is followed by no hex digit"},
      {"00 0xg", "0x at character 4 is followed by no hex digit"},
      {"00000000: 00 11\n00000010: 22",
       "the line at offset 00000010 follows 2 bytes, so lines are missing or out of order"},
      {"00 11 00000010: 22",
       "the line at offset 00000010 follows 2 bytes, so lines are missing or out of order"},
  };
  for (const auto& c : cases) {
    const Dump dump = parse_dump(c.text);
    EXPECT_EQ(dump.error, c.error);
    EXPECT_TRUE(dump.bytes.empty());
  }
}

TEST(Dump, ReadsMegabytes) {
  const Dump dump = parse_dump(std::string(10'000'000, 'a'));
  EXPECT_EQ(dump.bytes.size(), 5'000'000u);
  EXPECT_FALSE(parse_dump(std::string(10'000'001, 'a')).error.empty());
}

TEST(Dump, EndsOnAnyText) {
  std::mt19937_64 random(0x5eed0100);
  const std::string alphabet = "0123456789abcdefx:, \n|g";
  for (std::uint64_t i = 0; i < test::scaled(20000); ++i) {
    std::string text(random() % 40, ' ');
    for (char& c : text) c = alphabet[random() % alphabet.size()];
    const Dump dump = parse_dump(text);
    EXPECT_NE(dump.error.empty(), dump.bytes.empty()) << text;
  }
}

TEST(Dump, PutsWordsOfALittleEndianHostIntoMemoryOrder) {
  Bytes bytes = parse_dump("00000000 04510000 c50a0009 d2bf0000").bytes;
  reorder(bytes, Words::kLittle32);
  EXPECT_EQ(bytes, kSixteen);
  bytes = parse_dump("0451000000000000 d2bf0000c50a0009").bytes;
  reorder(bytes, Words::kLittle64);
  EXPECT_EQ(bytes, kSixteen);
  reorder(bytes, Words::kMemoryOrder);
  EXPECT_EQ(bytes, kSixteen);
  bytes = {1, 2, 3, 4, 5};
  reorder(bytes, Words::kLittle32);
  EXPECT_EQ(bytes, (Bytes{4, 3, 2, 1, 5}));
}

}  // namespace
}  // namespace peal::decode
