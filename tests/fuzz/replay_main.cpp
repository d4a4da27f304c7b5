// Runs a fuzz target without a fuzzer: over each file that is given or lies in a folder that is
// given, and then over seeded mutations of them, the same ones each time.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "support/scale.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes);

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr const char* kFailedInput = "failed-input";
constexpr std::uint64_t kMutations = 3000;

// What runs now, for the handler of the signal that ends the program.
std::string running;
Bytes input;

void keep_failed_input(int signal) {
  const int fd = ::open(kFailedInput, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const bool kept = ::write(fd, input.data(), input.size()) == static_cast<ssize_t>(input.size());
  std::fprintf(stderr, "replay: failed in %s; the input is %s %s\n", running.c_str(),
               kept ? "in" : "not in", kFailedInput);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void run(std::string name, Bytes bytes) {
  running = std::move(name);
  input = std::move(bytes);
  // A copy of its own size, so that a sanitizer sees each byte too far.
  const Bytes exact(input);
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

Bytes read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

class Mutator {
 public:
  explicit Mutator(const std::vector<Bytes>& corpus) : corpus_(corpus) {}

  Bytes next() {
    Bytes bytes = corpus_[below(corpus_.size())];
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) change(&bytes);
    return bytes;
  }

 private:
  std::size_t below(std::size_t end) { return static_cast<std::size_t>(random_() % end); }

  void change(Bytes* bytes) {
    static constexpr std::uint8_t kEdges[] = {0, 1, 0x7f, 0x80, 0xff, '0', '9', '-', '"', '\n'};
    const std::size_t place = below(bytes->size() + 1);
    const auto at = bytes->begin() + static_cast<std::ptrdiff_t>(place);
    const std::size_t length = std::min(1 + below(16), bytes->size() - place);
    if (below(4) == 0) {
      const Bytes& other = corpus_[below(corpus_.size())];
      const std::size_t from = below(other.size() + 1);
      const std::size_t count = std::min(1 + below(64), other.size() - from);
      const auto begin = other.begin() + static_cast<std::ptrdiff_t>(from);
      bytes->insert(at, begin, begin + static_cast<std::ptrdiff_t>(count));
      return;
    }
    if (length == 0) return;
    switch (below(3)) {
      case 0: *at = static_cast<std::uint8_t>(*at ^ (1u << below(8))); return;
      case 1: *at = kEdges[below(std::size(kEdges))]; return;
      default: bytes->erase(at, at + static_cast<std::ptrdiff_t>(length)); return;
    }
  }

  const std::vector<Bytes>& corpus_;
  std::mt19937_64 random_{1};
};

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) {
      files.emplace_back(argv[i]);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      files.push_back(entry.path());
    }
  }
  if (files.empty()) {
    std::fprintf(stderr, "replay: there is no input to run.\n");
    return 1;
  }
  std::sort(files.begin(), files.end());
  std::signal(SIGABRT, keep_failed_input);

  std::vector<Bytes> corpus;
  for (const auto& file : files) {
    if (!std::filesystem::is_regular_file(file)) {
      std::fprintf(stderr, "replay: '%s' is not a file.\n", file.c_str());
      return 1;
    }
    corpus.push_back(read_file(file));
    run(file.string(), corpus.back());
  }
  const std::uint64_t mutations = peal::test::scaled(kMutations);
  Mutator mutator(corpus);
  for (std::uint64_t i = 0; i < mutations; ++i) {
    run("mutation " + std::to_string(i), mutator.next());
  }
  std::printf("replayed %zu inputs and %llu mutations\n", corpus.size(),
              static_cast<unsigned long long>(mutations));
  return 0;
}
