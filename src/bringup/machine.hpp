// What the bring-up list looks at: files, libraries, limits, what CUDA says. A test hands in a
// machine that it has made up, as a folder with its own sys, proc and dev.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace peal::bringup {

inline constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

struct Library {
  std::string why_not;              // empty when it has been loaded
  std::string file;                 // where it lies, links followed
  std::vector<std::string> absent;  // of the symbols that were asked for
};

struct CudaGpu {
  std::string pci_address;  // 0000:1b:00.0
  bool dmabuf = false;      // whether its memory can be exported as one
};

struct DevxAnswer {
  bool works = false;
  std::string text;  // what the device tells, or what went wrong
};

struct Machine {
  std::filesystem::path root = "/";
  std::function<Library(const std::string& name, const std::vector<std::string>& symbols)> load;
  // Whether this user may read and write a file, given below the root.
  std::function<bool(const std::filesystem::path&)> may_use;
  std::uint64_t memlock_bytes = kNoLimit;
  // In CUDA's order. Nothing where CUDA cannot be asked.
  std::optional<std::vector<CudaGpu>> cuda_gpus;
  // None where devices cannot be asked.
  std::function<DevxAnswer(const std::string& device)> ask_devx;
};

// The one that this process runs on. Loads libcuda, where it is, and asks it.
Machine this_machine();

// The first line of a file below the root, without the spaces around it. Nothing for a file that
// is not there or cannot be read, as those of empty GID slots.
std::optional<std::string> line_of(const Machine& machine, const std::filesystem::path& file);
// All of it, with the same exceptions.
std::optional<std::string> text_of(const Machine& machine, const std::filesystem::path& file);
bool is_there(const Machine& machine, const std::filesystem::path& file);
// The names in a folder, with the numbers in them in their order; none where there is no folder.
std::vector<std::string> names_in(const Machine& machine, const std::filesystem::path& folder);

// Whether this process holds a capability of the machine, and not only of a user namespace.
bool is_capable(const Machine& machine, unsigned capability);

}  // namespace peal::bringup
