// The instructions of bus_points.cpp, by function.
#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace peal::test {
namespace {

using Body = std::vector<std::string>;

// The barriers and the stores to memory of each function, in their order.
std::map<std::string, Body> read_assembly(const char* path) {
  std::map<std::string, Body> functions;
  std::ifstream file(path);
  std::string name;
  for (std::string line; std::getline(file, line);) {
    // A label; everything else is indented, a directive or a comment.
    if (!line.empty() && std::isalpha(static_cast<unsigned char>(line[0])) != 0) {
      name = line.substr(0, line.find(':'));
    }
    std::istringstream words(line);
    std::string word;
    std::string rest;
    words >> word;
    std::getline(words, rest);
    if (word == "sfence" || word == "mfence") functions[name].push_back(word);
    if (word == "dmb" || word == "dsb") {
      functions[name].push_back(word + " " + rest.substr(rest.find_first_not_of("\t ")));
    }
    if (word.starts_with("mov") && rest.ends_with("(%rdi)")) functions[name].push_back("store");
  }
  return functions;
}

TEST(Bus, ACpuFencesAroundTheRegisterOfADevice) {
#ifndef __x86_64__
  GTEST_SKIP() << "these are the instructions of x86-64";
#endif
  auto functions = read_assembly(PEAL_BUS_ASSEMBLY);
  EXPECT_EQ(functions["mo1_bus"], Body{"store"}) << "stores to memory are seen in order";
  const Body around = {"sfence", "store", "sfence"};
  EXPECT_EQ(functions["mo2_bus"], around);
  EXPECT_EQ(functions["mo3_bus"], around);
  EXPECT_EQ(functions["mo2_system"], Body{"store"});
}

TEST(Bus, AnArmCpuHasTheBarriersOfRdmaCore) {
  const std::string path = PEAL_BUS_ASSEMBLY_AARCH64;
  if (path.empty()) GTEST_SKIP() << "there is no clang++, which compiles for other processors";
  auto functions = read_assembly(path.c_str());
  EXPECT_EQ(functions["memory_before_memory"], Body{"dmb oshst"});
  EXPECT_EQ(functions["around_register"], Body{"dsb st"});
  EXPECT_EQ(functions["loads_after_load"], Body{"dmb oshld"});
}

}  // namespace
}  // namespace peal::test
