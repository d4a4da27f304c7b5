#pragma once

#include <string>
#include <vector>

namespace peal::cli {

// As typed; empty where nothing was.
struct DecodeArguments {
  std::vector<std::string> hex;
  std::string words;
  std::string qpn;
  std::string index;
  std::string depth;
  std::string lkey;
  std::string rkey;
  std::string number;
  std::string entries;
  std::string from;
};

// Say on the standard output what the bytes mean, and return whether something is wrong with them.
// Throw UsageError.
bool print_wqe(const DecodeArguments& arguments);
bool print_cqe(const DecodeArguments& arguments);
bool print_packet(const DecodeArguments& arguments);

}  // namespace peal::cli
