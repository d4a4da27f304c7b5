// For tests of the decoders: what they found, in the words that a user reads.
#pragma once

#include <string>

#include "decode/decoded.hpp"

namespace peal::test {

// The meaning of the only field of this name.
inline std::string meaning(const decode::Decoded& decoded, const std::string& name) {
  std::string found = "no field " + name;
  for (const decode::Field& f : decoded.fields) {
    if (f.name == name) found = f.meaning;
  }
  return found;
}

inline std::string raw(const decode::Decoded& decoded, const std::string& name) {
  std::string found = "no field " + name;
  for (const decode::Field& f : decoded.fields) {
    if (f.name == name) found = f.raw;
  }
  return found;
}

// Each thing that is wrong, a line each; empty where nothing is.
inline std::string wrongs(const decode::Decoded& decoded) {
  std::string all;
  for (const decode::Finding& f : decoded.findings) {
    if (f.wrong()) all += (all.empty() ? "" : "\n") + f.what;
  }
  return all;
}

inline std::string notes(const decode::Decoded& decoded) {
  std::string all;
  for (const decode::Finding& f : decoded.findings) {
    if (!f.wrong()) all += (all.empty() ? "" : "\n") + f.what;
  }
  return all;
}

}  // namespace peal::test
