// `peal decode`: what a dumped WQE, CQE or packet means.
#include "cli/decode.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstdio>
#include <limits>
#include <optional>

#include "decode/cqe.hpp"
#include "decode/decoded.hpp"
#include "decode/dump.hpp"
#include "decode/packet.hpp"
#include "decode/wqe.hpp"
#include "ladder/parse.hpp"
#include "ladder/usage_error.hpp"

namespace peal::cli {
namespace {

using ladder::UsageError;

// Far more than a packet of 64 KiB takes in hex.
constexpr std::size_t kMaxInput = std::size_t{1} << 20;
constexpr std::uint64_t kMaxQpn = 0xffffff;
constexpr std::uint64_t kMaxKey = 0xffffffff;
constexpr std::uint64_t kMaxDepth = 65536;

std::string read_standard_input() {
  std::string text;
  std::array<char, 4096> buffer;
  while (text.size() <= kMaxInput) {
    const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), stdin);
    if (n == 0) break;
    text.append(buffer.data(), n);
  }
  return text;
}

std::string text_of(const std::vector<std::string>& arguments) {
  std::string text;
  for (const std::string& argument : arguments) {
    if (!text.empty()) text += '\n';
    text += argument == "-" ? read_standard_input() : argument;
    if (text.size() > kMaxInput) {
      throw UsageError(fmt::format("the dump has more than {} characters", kMaxInput));
    }
  }
  return text;
}

decode::Words parse_words(const std::string& text) {
  if (text.empty() || text == "be") return decode::Words::kMemoryOrder;
  if (text == "le") return decode::Words::kLittle32;
  if (text == "le64") return decode::Words::kLittle64;
  throw UsageError("--words must be one of be, le, le64, not '" + text + "'");
}

decode::PacketStart parse_start(const std::string& text) {
  if (text.empty()) return decode::PacketStart::kGuessed;
  if (text == "ip") return decode::PacketStart::kIp;
  if (text == "ethernet") return decode::PacketStart::kEthernet;
  if (text == "bth") return decode::PacketStart::kBth;
  throw UsageError("--from must be one of ip, ethernet, bth, not '" + text + "'");
}

decode::Bytes bytes_of(const DecodeArguments& a) {
  const decode::Words words = parse_words(a.words);
  decode::Dump dump = decode::parse_dump(text_of(a.hex));
  if (!dump.error.empty()) throw UsageError(dump.error);
  decode::reorder(dump.bytes, words);
  return std::move(dump.bytes);
}

// Nothing where nothing was typed.
template <class Number>
std::optional<Number> parse_number(const char* option, const std::string& text, std::uint64_t least,
                                   std::uint64_t most) {
  if (text.empty()) return std::nullopt;
  const auto number = ladder::try_parse_number(text, ladder::Base::kDecimalOrHex);
  if (!number || *number < least || *number > most) {
    throw UsageError(fmt::format(
        "{} must be a whole number from {} to {}, in decimal or in hexadecimal after 0x, not '{}'",
        option, least, most, text));
  }
  return static_cast<Number>(*number);
}

template <class Number>
std::optional<Number> parse_power_of_two(const char* option, const std::string& text,
                                         std::uint64_t most) {
  const auto number = parse_number<Number>(option, text, 1, most);
  if (number && !std::has_single_bit(*number)) {
    throw UsageError(fmt::format("{} must be a power of two, not '{}'", option, text));
  }
  return number;
}

template <class Decode>
bool print(const DecodeArguments& a, std::optional<std::string> (*refuse)(std::size_t),
           const Decode& decode) {
  const decode::Bytes bytes = bytes_of(a);
  if (const auto refusal = refuse(bytes.size())) throw UsageError(*refusal);
  const decode::Decoded decoded = decode(bytes);
  fmt::print("{}", decode::to_text(decoded));
  return decoded.wrong();
}

}  // namespace

bool print_wqe(const DecodeArguments& a) {
  decode::WqeExpectations expected;
  expected.index =
      parse_number<std::uint64_t>("--index", a.index, 0, std::numeric_limits<std::uint64_t>::max());
  expected.depth = parse_power_of_two<std::uint32_t>("--depth", a.depth, kMaxDepth);
  expected.qpn = parse_number<std::uint32_t>("--qpn", a.qpn, 1, kMaxQpn);
  expected.lkey = parse_number<std::uint32_t>("--lkey", a.lkey, 1, kMaxKey);
  expected.rkey = parse_number<std::uint32_t>("--rkey", a.rkey, 1, kMaxKey);
  return print(a, decode::refuse_wqe_size,
               [&](const decode::Bytes& bytes) { return decode::decode_wqe(bytes, expected); });
}

bool print_cqe(const DecodeArguments& a) {
  decode::CqeExpectations expected;
  expected.number = parse_number<std::uint64_t>("--number", a.number, 0,
                                                std::numeric_limits<std::uint64_t>::max());
  expected.entries = parse_power_of_two<std::uint64_t>("--entries", a.entries, 1u << 31);
  if (expected.number.has_value() != expected.entries.has_value()) {
    throw UsageError("--number and --entries say which lap is awaited only together");
  }
  expected.qpn = parse_number<std::uint32_t>("--qpn", a.qpn, 1, kMaxQpn);
  return print(a, decode::refuse_cqe_size,
               [&](const decode::Bytes& bytes) { return decode::decode_cqe(bytes, expected); });
}

bool print_packet(const DecodeArguments& a) {
  const decode::PacketStart from = parse_start(a.from);
  return print(a, decode::refuse_packet_size,
               [from](const decode::Bytes& bytes) { return decode::decode_packet(bytes, from); });
}

}  // namespace peal::cli
