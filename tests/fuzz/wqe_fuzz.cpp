// The NIC's check of a WQE and the responder's of a write, over tables of a few regions.
// Input: index (8), slots posted (8), bytes to write (8), log_msg_max (1), remote writes allowed
// (1), the slot (64).
#include <memory>
#include <span>

#include "fuzz/fuzz.hpp"
#include "nic/check.hpp"

namespace peal::nic {
namespace {

using test::require;

constexpr std::uint32_t kPd = 3;
constexpr std::uint32_t kQpn = 0xabcdef;
constexpr std::size_t kEntries = 6;  // of the keys, 0 unused

alignas(64) std::byte memory[3][8192];

// Entry 1 may be written, 2 not, 3 ends where the address space does, 4 is of another PD and 5
// gone.
std::unique_ptr<Tables> make_tables() {
  auto tables = std::make_unique<Tables>();
  tables->key_base = 2 * kMaxKeys;
  const auto add = [&](std::uint32_t index, std::uint32_t pd, std::uint32_t access,
                       std::uint64_t start, std::uint64_t bytes, std::byte* at) {
    const std::uint32_t key = (tables->key_base + index) << 8 | 0x5a;
    tables->keys[index] = {key, key, pd, access, start, bytes, at};
  };
  add(1, kPd, kLocalWrite | kRemoteWrite, 0x1000, 8192, memory[0]);
  add(2, kPd, kLocalWrite, 0x7000'0000'0001, 1, memory[1]);
  add(3, kPd, kRemoteWrite, ~std::uint64_t{4095}, 4095, memory[1]);
  add(4, kPd + 1, kLocalWrite | kRemoteWrite, 0x1000, 8192, memory[2]);
  add(5, kPd, kRemoteWrite, 0x1000, 8192, memory[2]);
  tables->keys[5].key = 0;
  return tables;
}

std::uint64_t big_endian(const std::uint8_t* at, std::size_t bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) value = value << 8 | at[i];
  return value;
}

// Where [address, address + bytes) of the QP's own regions lies, or null. In a way of its own.
const std::byte* place_of(const Tables& tables, std::uint32_t name, std::uint64_t address,
                          std::uint64_t bytes, std::uint32_t access) {
  for (const KeyEntry& k : std::span(tables.keys).first(kEntries)) {
    if (k.key == 0 || k.key != name || k.pd != kPd || (k.access & access) != access) continue;
    if (address < k.start || address - k.start > k.bytes) return nullptr;
    const std::uint64_t from = address - k.start;
    return bytes <= k.bytes - from ? k.memory + from : nullptr;
  }
  return nullptr;
}

void check_wqe(const std::uint8_t (&raw)[64], std::uint64_t index, std::uint64_t posted,
               const QpEntry& qp, const Tables& tables) {
  mlx5::Slot slot;
  std::memcpy(&slot, raw, sizeof slot);
  const CheckResult r = check(slot, index, posted, qp, tables);
  const bool accepted = r.refusal == Refusal::kNone;

  require(r.refusal < Refusal::kCount, "a refusal is one that has a sentence");
  require(accepted == (r.syndrome == mlx5::Syndrome::kNone), "a refusal has a syndrome");
  require(r.move.slots >= 1 && r.move.slots <= 16, "a WQE is of 1 to 16 slots");
  require(r.move.opcode == raw[3], "the opcode is the WQE's");
  require(r.move.fm_ce_se == raw[11], "fm_ce_se is the WQE's");
  if (!accepted) {
    require(r.move.source == nullptr, "a refused WQE has no source");
    return;
  }

  require(r.vendor_syndrome == 0, "an accepted WQE has no vendor syndrome");
  require(big_endian(raw + 1, 2) == (index & 0xffff), "an accepted WQE has its slot's index");
  require(big_endian(raw + 4, 3) == kQpn, "an accepted WQE is its QP's");
  require(r.move.slots <= posted, "an accepted WQE is posted in whole");
  if (r.move.opcode == static_cast<std::uint8_t>(mlx5::Opcode::kNop)) {
    require(r.move.source == nullptr && r.move.bytes == 0, "a NOP moves nothing");
    return;
  }
  require(r.move.opcode == static_cast<std::uint8_t>(mlx5::Opcode::kRdmaWrite),
          "what is accepted is a write or a NOP");
  require(r.move.remote_address == big_endian(raw + 16, 8), "the remote address is the WQE's");
  require(r.move.rkey.value == big_endian(raw + 24, 4), "the rkey is the WQE's");
  require(r.move.bytes <= std::uint64_t{1} << qp.log_msg_max, "no message is too long for its QP");
  if (r.move.bytes == 0) {
    require(r.move.source == nullptr, "a write of nothing has no source");
    return;
  }
  const auto lkey = static_cast<std::uint32_t>(big_endian(raw + 36, 4));
  require(r.move.source != nullptr, "a write of something has a source");
  require(r.move.source == place_of(tables, lkey, big_endian(raw + 40, 8), r.move.bytes, 0),
          "the source lies within the region that the lkey names");
}

void check_remote(std::uint64_t address, std::uint32_t rkey, std::uint64_t bytes, const QpEntry& qp,
                  const Tables& tables) {
  std::byte* target = memory[0];
  const Refusal why = check_remote_write(address, Rkey(rkey), bytes, qp, tables, &target);
  const std::byte* place =
      bytes == 0 ? nullptr : place_of(tables, rkey, address, bytes, kRemoteWrite);
  const bool right = qp.remote_write_enabled && (bytes == 0 || place != nullptr);
  require(right == (why == Refusal::kNone), "a write is accepted where it is within its rights");
  require(target == (right ? place : nullptr), "the target is where the rkey and address say");
}

}  // namespace
}  // namespace peal::nic

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace peal::nic;
  static const std::unique_ptr<Tables> tables = make_tables();
  peal::test::Input input(data, bytes);
  const auto index = input.take<std::uint64_t>();
  const auto posted = input.take<std::uint64_t>();
  const auto write_bytes = input.take<std::uint64_t>();
  QpEntry qp;
  qp.qpn = peal::Qpn(kQpn);
  qp.pd = kPd;
  qp.log_msg_max = input.take<std::uint8_t>() % 31;
  qp.remote_write_enabled = input.take<std::uint8_t>() % 2 == 1;
  std::uint8_t raw[64];
  input.read(raw, sizeof raw);

  check_wqe(raw, index, posted, qp, *tables);
  check_remote(big_endian(raw + 16, 8), static_cast<std::uint32_t>(big_endian(raw + 24, 4)),
               write_bytes, qp, *tables);
  return 0;
}
