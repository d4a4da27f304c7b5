// The NIC's check of a WQE and the responder's of a request, over tables of a few regions.
// Input: index (8), slots posted (8), bytes to write (8), log_msg_max (1), how strictly waivable
// rules are kept (1), the slots (1024).
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
  tables->cqs[7].used = true;
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

constexpr std::size_t kWqeBytes = 1024;

bool is(const CheckResult& r, mlx5::Opcode opcode) {
  return r.move.opcode == static_cast<std::uint8_t>(opcode);
}

// The data segment that begins at byte `at` names what was resolved.
void check_local(const std::uint8_t* raw, std::size_t at, const CheckResult& r,
                 std::uint32_t access, const Tables& tables) {
  const auto lkey = static_cast<std::uint32_t>(big_endian(raw + at + 4, 4));
  require(r.move.local == place_of(tables, lkey, big_endian(raw + at + 8, 8), r.move.bytes, access),
          "local memory lies within the region that the lkey names");
  require(r.move.local != nullptr, "what moves bytes has memory for them");
}

void check_wqe(const std::uint8_t (&raw)[kWqeBytes], std::uint64_t index, std::uint64_t posted,
               const QpEntry& qp, const Tables& tables) {
  alignas(64) mlx5::Words16 wqe[kWqeBytes / mlx5::kSegmentBytes];
  std::memcpy(wqe, raw, sizeof wqe);
  const CheckResult r = check(wqe, index, posted, qp, tables);
  const bool accepted = r.refusal == Refusal::kNone;
  const bool strict =
      tables.rules[static_cast<std::size_t>(Refusal::kWqeIndex)] == Strictness::kRefuse;

  require(r.refusal < Refusal::kCount, "a refusal is one that has a sentence");
  require(accepted == (r.syndrome == mlx5::Syndrome::kNone), "a refusal has a syndrome");
  require(r.move.slots >= 1 && r.move.slots <= 16, "a WQE is of 1 to 16 slots");
  require(r.move.opcode == raw[3], "the opcode is the WQE's");
  require(r.move.fm_ce_se == raw[11], "fm_ce_se is the WQE's");
  require(!strict || r.warned == 0, "what is refused is not warned of");
  if (!accepted) {
    require(r.move.local == nullptr, "a refused WQE has no memory");
    return;
  }

  require(r.vendor_syndrome == 0, "an accepted WQE has no vendor syndrome");
  if (strict) {
    require(big_endian(raw + 1, 2) == (index & 0xffff), "an accepted WQE has its slot's index");
    require(big_endian(raw + 4, 3) == kQpn, "an accepted WQE is its QP's");
    require(r.move.operation == Operation::kAtomic || r.move.operation == Operation::kDump ||
                r.move.bytes <= std::uint64_t{1} << qp.log_msg_max,
            "no message is too long");
  }
  require(r.move.slots <= posted, "an accepted WQE is posted in whole");
  const std::size_t ds = raw[7] & 0x3f;
  switch (r.move.operation) {
    case Operation::kNop:
      require(is(r, mlx5::Opcode::kNop), "a NOP is one");
      require(r.move.local == nullptr && r.move.bytes == 0, "a NOP moves nothing");
      return;
    case Operation::kWait:
      require(is(r, mlx5::Opcode::kWait), "a WAIT is one");
      require(tables.cqs[r.move.wait_cq].used, "a WAIT waits for a CQ that exists");
      return;
    case Operation::kDump:
      require(is(r, mlx5::Opcode::kDump), "a DUMP is one");
      if (r.move.bytes > 0) check_local(raw, 16, r, 0, tables);
      return;
    default: break;
  }
  require(r.move.remote_address == big_endian(raw + 16, 8), "the remote address is the WQE's");
  require(r.move.rkey.value == big_endian(raw + 24, 4), "the rkey is the WQE's");
  switch (r.move.operation) {
    case Operation::kWrite:
      require(is(r, mlx5::Opcode::kRdmaWrite) || is(r, mlx5::Opcode::kRdmaWriteImm),
              "a write is one");
      if (r.move.inlined) {
        require(r.move.local == reinterpret_cast<const std::byte*>(wqe) + 36,
                "inline data lie in the WQE");
        require(36 + r.move.bytes <= 16 * ds, "inline data end within the WQE");
      } else if (r.move.bytes > 0) {
        check_local(raw, 32, r, 0, tables);
      }
      return;
    case Operation::kRead:
      require(is(r, mlx5::Opcode::kRdmaRead), "a read is one");
      if (r.move.bytes > 0) check_local(raw, 32, r, kLocalWrite, tables);
      return;
    default:
      require(r.move.bytes == 8 || r.move.bytes == 4, "an atomic has an operand of 4 or 8 bytes");
      check_local(raw, is(r, mlx5::Opcode::kMaskedCompareSwap) && r.move.bytes == 8 ? 64 : 48, r,
                  kLocalWrite, tables);
  }
}

void check_responder(std::uint64_t address, std::uint32_t rkey, std::uint64_t bytes,
                     const QpEntry& qp, const Tables& tables) {
  for (const std::uint32_t access : {kRemoteWrite, kRemoteRead}) {
    std::byte* target = memory[0];
    const Refusal why = check_remote(address, Rkey(rkey), bytes, access, qp, tables, &target);
    const std::byte* place = bytes == 0 ? nullptr : place_of(tables, rkey, address, bytes, access);
    const bool right = bytes == 0 || place != nullptr;
    require(right == (why == Refusal::kNone), "a request is accepted within its rights");
    require(target == (right ? place : nullptr), "the target is where the rkey and address say");
  }
}

}  // namespace
}  // namespace peal::nic

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace peal::nic;
  static const std::unique_ptr<Tables> tables = make_tables();
  static_assert(kWqeBytes == kMaxWqeSegments * peal::mlx5::kSegmentBytes);
  peal::test::Input input(data, bytes);
  const auto index = input.take<std::uint64_t>();
  const auto posted = input.take<std::uint64_t>();
  const auto write_bytes = input.take<std::uint64_t>();
  QpEntry qp;
  qp.qpn = peal::Qpn(kQpn);
  qp.pd = kPd;
  qp.log_msg_max = input.take<std::uint8_t>() % 31;
  const auto level = static_cast<Strictness>(2 - input.take<std::uint8_t>() / 86);
  tables->rules.fill(level);
  std::uint8_t raw[kWqeBytes];
  input.read(raw, sizeof raw);

  check_wqe(raw, index, posted, qp, *tables);
  check_responder(big_endian(raw + 16, 8), static_cast<std::uint32_t>(big_endian(raw + 24, 4)),
                  write_bytes, qp, *tables);
  return 0;
}
