// The frames of a capture: a pcap file of a little-endian host, Ethernet.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace peal::test {

using Frame = std::vector<std::byte>;

inline std::vector<Frame> frames_of(const std::string& name) {
  std::ifstream file(PEAL_SOURCE_DIR "/tests/wire/golden/" + name, std::ios::binary);
  const std::vector<char> all(std::istreambuf_iterator<char>(file), {});
  const auto word = [&all](std::size_t at) {
    std::uint32_t value = 0;
    std::memcpy(&value, all.data() + at, sizeof value);
    return value;
  };
  constexpr std::size_t kFileHeader = 24;
  constexpr std::size_t kFrameHeader = 16;
  std::vector<Frame> frames;
  if (all.size() < kFileHeader || word(0) != 0xa1b2c3d4 || word(20) != 1) {
    ADD_FAILURE() << name << " is no capture";
    return frames;
  }
  for (std::size_t at = kFileHeader; at + kFrameHeader <= all.size();) {
    const std::size_t bytes = word(at + 8);
    at += kFrameHeader;
    if (bytes > all.size() - at) {
      ADD_FAILURE() << name << " ends within a frame";
      break;
    }
    const auto* data = reinterpret_cast<const std::byte*>(all.data() + at);
    frames.emplace_back(data, data + bytes);
    at += bytes;
  }
  return frames;
}

}  // namespace peal::test
