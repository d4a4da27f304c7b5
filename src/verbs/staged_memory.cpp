#include "verbs/staged_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "peal/host/error.hpp"

namespace peal::verbs {
namespace {

constexpr std::size_t kBounceBytes = std::size_t{1} << 20;

struct StagedRange {
  std::uintptr_t begin;
  std::uintptr_t end;
  std::shared_ptr<DeviceMemory> table;
};

struct StagedRanges {
  std::mutex mutex;
  std::vector<StagedRange> all;  // few: an arena for each device
};

StagedRanges& staged_ranges() {
  static StagedRanges ranges;
  return ranges;
}

std::uintptr_t number_of(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p);
}

std::string bytes_text(std::size_t bytes) {
  return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
}

// Null where the CPU reaches `p` itself.
std::shared_ptr<DeviceMemory> table_of(const void* p, std::size_t bytes) {
  StagedRanges& ranges = staged_ranges();
  const std::lock_guard lock(ranges.mutex);
  for (const StagedRange& r : ranges.all) {
    if (number_of(p) < r.begin || number_of(p) >= r.end) continue;
    if (bytes > r.end - number_of(p)) {
      throw Error(EFAULT, "the NIC was to reach " + bytes_text(bytes) +
                              " of device memory, of which only " +
                              bytes_text(r.end - number_of(p)) + " are in their range");
    }
    return r.table;
  }
  return nullptr;
}

void require_copied(int error, std::size_t bytes, const char* where) {
  if (error == 0) return;
  throw system_error(error, "the NIC was copying " + bytes_text(bytes) + " " + where);
}

}  // namespace

StagedMemory::Range::Range(void* begin, std::size_t bytes, std::shared_ptr<DeviceMemory> table)
    : begin_(number_of(begin)) {
  StagedRanges& ranges = staged_ranges();
  const std::uintptr_t end = begin_ + bytes;
  const std::lock_guard lock(ranges.mutex);
  for (const StagedRange& r : ranges.all) {
    if (begin_ < r.end && r.begin < end) {
      throw Error(EINVAL, "a range of device memory overlaps another one");
    }
  }
  ranges.all.push_back({begin_, end, std::move(table)});
}

StagedMemory::Range::~Range() {
  StagedRanges& ranges = staged_ranges();
  const std::lock_guard lock(ranges.mutex);
  std::erase_if(ranges.all, [this](const StagedRange& r) { return r.begin == begin_; });
}

bool StagedMemory::in_a_range(const void* p) {
  return table_of(p, 0) != nullptr;
}

bool StagedMemory::read(void* to, const void* from, std::size_t bytes) {
  const auto table = table_of(from, bytes);
  if (table == nullptr) return false;
  require_copied(table->copy_from_device(to, from, bytes), bytes, "from device memory");
  return true;
}

bool StagedMemory::write(void* to, const void* from, std::size_t bytes) {
  const auto table = table_of(to, bytes);
  if (table == nullptr) return false;
  require_copied(table->copy_to_device(to, from, bytes), bytes, "to device memory");
  return true;
}

std::uint32_t StagedMemory::load_dbrec_acquire(const std::uint32_t* dbrec) {
  std::uint32_t v = 0;
  return read(&v, dbrec, sizeof v) ? v : CpuMemory::load_dbrec_acquire(dbrec);
}

mlx5::Slot StagedMemory::fetch_slot(const mlx5::Slot* slot) {
  mlx5::Slot s;
  return read(&s, slot, sizeof s) ? s : CpuMemory::fetch_slot(slot);
}

void StagedMemory::copy_payload(std::byte* to, const std::byte* from, std::size_t bytes) {
  const auto to_table = table_of(to, bytes);
  const auto from_table = table_of(from, bytes);
  if (to_table == nullptr && from_table == nullptr) {
    return CpuMemory::copy_payload(to, from, bytes);
  }
  if (to_table == nullptr || from_table == nullptr || to_table == from_table) {
    DeviceMemory& table = to_table == nullptr ? *from_table : *to_table;
    return require_copied(table.copy_payload(to, from, bytes), bytes,
                          to_table == nullptr     ? "from device memory"
                          : from_table == nullptr ? "to device memory"
                                                  : "within device memory");
  }
  std::vector<std::byte> bounce(std::min(bytes, kBounceBytes));
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t n = std::min(bytes - done, bounce.size());
    require_copied(from_table->copy_payload(bounce.data(), from + done, n), n,
                   "from device memory");
    require_copied(to_table->copy_payload(to + done, bounce.data(), n), n, "to device memory");
    done += n;
  }
}

void StagedMemory::store_cqe(mlx5::Cqe* entry, const mlx5::Cqe& cqe) {
  constexpr std::size_t kBodyBytes = mlx5::kCqeOwnerWord * sizeof cqe.word[0];
  if (!write(entry, &cqe, kBodyBytes)) return CpuMemory::store_cqe(entry, cqe);
  write(&entry->word[mlx5::kCqeOwnerWord], &cqe.word[mlx5::kCqeOwnerWord], sizeof cqe.word[0]);
}

}  // namespace peal::verbs
