#include "bringup/machine.hpp"

#include <dlfcn.h>
#include <link.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <sstream>

namespace peal::bringup {
namespace {

namespace fs = std::filesystem;

fs::path below(const Machine& machine, const fs::path& file) {
  return machine.root / file.relative_path();
}

// It stays loaded: what it allocated when it was is not freed by unloading.
Library load_library(const std::string& name, const std::vector<std::string>& symbols) {
  void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return {dlerror(), "", {}};
  Library library;
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr) {
    std::error_code error;
    const fs::path file = fs::canonical(map->l_name, error);
    library.file = error ? map->l_name : file.string();
  }
  for (const std::string& symbol : symbols) {
    if (dlsym(handle, symbol.c_str()) == nullptr) library.absent.push_back(symbol);
  }
  return library;
}

// By the driver's own library, so that it is asked in builds without CUDA, too. It stays loaded:
// it does not expect to be unloaded.
std::optional<std::vector<CudaGpu>> ask_cuda() {
  constexpr int kDmaBufSupported = 124;  // CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED
  void* cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (cuda == nullptr) return std::nullopt;
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(cuda, "cuInit"));
  const auto count_of = reinterpret_cast<int (*)(int*)>(dlsym(cuda, "cuDeviceGetCount"));
  const auto address_of =
      reinterpret_cast<int (*)(char*, int, int)>(dlsym(cuda, "cuDeviceGetPCIBusId"));
  const auto attribute_of =
      reinterpret_cast<int (*)(int*, int, int)>(dlsym(cuda, "cuDeviceGetAttribute"));
  int count = 0;
  if (init == nullptr || count_of == nullptr || address_of == nullptr || attribute_of == nullptr ||
      init(0) != 0 || count_of(&count) != 0) {
    return std::nullopt;
  }
  std::vector<CudaGpu> gpus;
  for (int gpu = 0; gpu < count; ++gpu) {
    char address[32] = {};
    int dmabuf = 0;
    if (address_of(address, sizeof address, gpu) != 0) return std::nullopt;
    const bool asked = attribute_of(&dmabuf, kDmaBufSupported, gpu) == 0;
    std::string text = address;
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    gpus.push_back({text, asked && dmabuf != 0});
  }
  return gpus;
}

// mlx5_2 before mlx5_10.
bool is_before(const std::string& a, const std::string& b) {
  std::size_t i = 0;
  std::size_t j = 0;
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  const auto number = [&](const std::string& s, std::size_t& at) {
    const std::size_t from = s.find_first_not_of('0', at);
    at = std::min(s.find_first_not_of("0123456789", at), s.size());
    return from >= at ? std::string() : s.substr(from, at - from);
  };
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      const std::string x = number(a, i);
      const std::string y = number(b, j);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i;
      ++j;
    }
  }
  return a.size() - i < b.size() - j;
}

}  // namespace

Machine this_machine() {
  Machine machine;
  machine.load = load_library;
  machine.may_use = [](const fs::path& file) { return access(file.c_str(), R_OK | W_OK) == 0; };
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    machine.memlock_bytes = limit.rlim_cur;
  }
  machine.cuda_gpus = ask_cuda();
  return machine;
}

std::optional<std::string> text_of(const Machine& machine, const fs::path& file) {
  std::ifstream stream(below(machine, file), std::ios::binary);
  if (!stream) return std::nullopt;
  std::ostringstream text;
  // Nothing read is either an empty file or one that cannot be read, and neither says anything.
  text << stream.rdbuf();
  if (text.str().empty()) return std::nullopt;
  return text.str();
}

std::optional<std::string> line_of(const Machine& machine, const fs::path& file) {
  const auto text = text_of(machine, file);
  if (!text) return std::nullopt;
  const std::string line = text->substr(0, text->find('\n'));
  const std::size_t from = line.find_first_not_of(" \t\r");
  if (from == std::string::npos) return std::nullopt;
  return line.substr(from, line.find_last_not_of(" \t\r") - from + 1);
}

bool is_there(const Machine& machine, const fs::path& file) {
  std::error_code error;
  return fs::exists(below(machine, file), error);
}

std::vector<std::string> names_in(const Machine& machine, const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator i(below(machine, folder), error), end; !error && i != end;
       i.increment(error)) {
    names.push_back(i->path().filename());
  }
  std::sort(names.begin(), names.end(), is_before);
  return names;
}

bool is_capable(const Machine& machine, unsigned capability) {
  // Where the first user namespace ends, so do the capabilities of the machine.
  std::istringstream map(text_of(machine, "/proc/self/uid_map").value_or(""));
  std::uint64_t inside = 1;
  std::uint64_t outside = 1;
  std::uint64_t users = 0;
  map >> inside >> outside >> users;
  if (inside != 0 || outside != 0 || users < 4294967295) return false;
  std::istringstream status(text_of(machine, "/proc/self/status").value_or(""));
  for (std::string word; status >> word;) {
    std::uint64_t held = 0;
    if (word == "CapEff:" && status >> std::hex >> held) return (held >> capability & 1) != 0;
  }
  return false;
}

}  // namespace peal::bringup
