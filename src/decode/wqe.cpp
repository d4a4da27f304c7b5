#include "decode/wqe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "peal/mlx5/wqe.hpp"

namespace peal::decode {
namespace {

using mlx5::kSegmentBytes;
using mlx5::kSlotBytes;
using mlx5::Opcode;

constexpr std::uint64_t kMaxMessageBytes = std::uint64_t{1} << 30;
constexpr std::uint32_t kRaddr = 1;  // the segment's number, where there is one
// Addresses of processes lie below: 57 bits with five levels of page tables.
constexpr std::uint64_t kAddressEnd = std::uint64_t{1} << 57;
constexpr std::uint64_t kPageBytes = 4096;

bool is_known(std::uint8_t opcode) {
  return std::string_view(mlx5::opcode_name(opcode)) != "unknown opcode";
}

bool is_masked_atomic(Opcode opcode) {
  return opcode == Opcode::kMaskedFetchAdd || opcode == Opcode::kMaskedCompareSwap;
}

std::string count_of(std::uint64_t n, std::string_view noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

std::uint32_t slots_of(std::uint32_t ds) {
  return (ds + 3) / 4;
}

const char* fence_text(unsigned fence) {
  switch (fence) {
    case 0: return "none";
    case 1: return "initiator small fence";
    case 2: return "waits for all before it";
    case 3: return "strong ordering";
    case 4: return "small fence and fence";
    default: return "reserved";
  }
}

const char* completion_text(unsigned ce) {
  switch (ce) {
    case 0: return "CQE only on an error";
    case 1: return "CQE on the first error only";
    case 2: return "CQE always";
    default: return "CQE and event always";
  }
}

// What ds may be, and why.
struct SegmentNeed {
  std::uint32_t least = 1;
  std::uint32_t most = 63;
  std::uint32_t usual = 1;
  const char* why = "";
};

class WqeDecoder {
 public:
  WqeDecoder(std::span<const std::uint8_t> bytes, const WqeExpectations& expected)
      : view_(bytes), expected_(expected) {}

  Decoded run() {
    ctrl_ = mlx5::decode_ctrl(view_.words(0));
    opcode_ = static_cast<Opcode>(ctrl_.opcode);
    title();
    ctrl_fields();
    if (never_written() || looks_swapped()) return std::move(out_);
    check_opcode();
    check_queue();
    need_ = need();
    check_ds();
    segments();
    check_what_is_given();
    return std::move(out_);
  }

 private:
  // ---- output ----

  void field(std::uint32_t offset, std::uint32_t size, std::string name, std::string meaning) {
    out_.fields.push_back({offset, view_.hex(offset, size), std::move(name), std::move(meaning)});
  }
  void wrong(std::string what, std::string mend) {
    out_.findings.push_back({std::move(what), std::move(mend)});
  }
  void note(std::string what) { out_.findings.push_back({std::move(what), ""}); }

  const char* name() const { return mlx5::opcode_name(ctrl_.opcode); }

  void title() {
    out_.title = fmt::format(
        "WQE: {}, index {}, QPN 0x{:x}, {}",
        is_known(ctrl_.opcode) ? name() : fmt::format("unknown opcode 0x{:02x}", ctrl_.opcode),
        ctrl_.wqe_index, ctrl_.qpn.value, size_text());
  }

  std::string size_text() const {
    if (ctrl_.ds == 0) return "no segments";
    return fmt::format("{} in {}", count_of(ctrl_.ds * kSegmentBytes, "byte"),
                       count_of(slots_of(ctrl_.ds), "slot"));
  }

  // ---- ctrl segment ----

  void ctrl_fields() {
    const std::uint8_t flags = ctrl_.fm_ce_se;
    field(0, 1, "opmod", opmod_text());
    std::string index = fmt::format("{}", ctrl_.wqe_index);
    if (expected_.depth) {
      index += fmt::format(", slot {} of {}", ctrl_.wqe_index % *expected_.depth, *expected_.depth);
    }
    field(1, 2, "wqe_index", index);
    field(3, 1, "opcode", name());
    field(4, 3, "qpn", fmt::format("0x{:x} ({})", ctrl_.qpn.value, ctrl_.qpn.value));
    field(7, 1, "ds",
          fmt::format("{} of 16 bytes: {}", count_of(ctrl_.ds, "segment"),
                      count_of(slots_of(ctrl_.ds), "slot")));
    field(8, 1, "signature", "not looked at");
    field(9, 2, "dci_stream_channel_id", "not looked at");
    field(11, 1, "fm_ce_se",
          fmt::format("fence {} ({}), ce {} ({}), solicited {}", flags >> 5, fence_text(flags >> 5),
                      flags >> 2 & 3u, completion_text(flags >> 2 & 3u), flags >> 1 & 1u));
    field(12, 4, "imm", imm_text());
  }

  std::string opmod_text() const {
    if (is_masked_atomic(opcode_)) {
      if (ctrl_.opmod == mlx5::kMaskedAtomic4Bytes) return "operands of 4 bytes";
      if (ctrl_.opmod == mlx5::kMaskedAtomic8Bytes) return "operands of 8 bytes";
    }
    return fmt::format("{}", ctrl_.opmod);
  }

  std::string imm_text() const {
    switch (opcode_) {
      case Opcode::kRdmaWriteImm:
      case Opcode::kSendImm: return fmt::format("0x{:08x}, immediate data", ctrl_.imm);
      case Opcode::kSendInvalidate:
        return fmt::format("0x{:08x}, the peer's key to invalidate", ctrl_.imm);
      default: return "not used by this opcode";
    }
  }

  bool never_written() {
    if (!view_.all(0, view_.end(), 0)) return false;
    wrong("all bytes are 0, so no WQE was written here",
          "write the WQE before the doorbell announces its slot, or dump the slot that is meant");
    return true;
  }

  // A ctrl segment stored by a host that forgot to swap, or printed as its words.
  bool looks_swapped() {
    const bool senseless =
        !is_known(ctrl_.opcode) || ctrl_.ds == 0 || (opcode_ == Opcode::kNop && ctrl_.opmod != 0);
    if (!senseless) return false;
    const std::uint64_t first = view_.be(0, 8);
    const auto d0 = static_cast<std::uint32_t>(first >> 32);
    const auto d1 = static_cast<std::uint32_t>(first);
    if (explain_swap(swap_bytes(d0), swap_bytes(d1), "the bytes of each 4-byte word", "le")) {
      return true;
    }
    const std::uint64_t all = swap_bytes(first);
    return explain_swap(static_cast<std::uint32_t>(all >> 32), static_cast<std::uint32_t>(all),
                        "the bytes of each 8-byte word", "le64");
  }

  bool explain_swap(std::uint32_t d0, std::uint32_t d1, const char* swapped, const char* words) {
    const mlx5::CtrlSeg s = mlx5::decode_ctrl({mlx5::detail::pair_of_be32(d0, d1), 0});
    const bool plausible = is_known(s.opcode) && s.opcode != 0 && s.ds != 0 && (d1 & 0xc0) == 0 &&
                           s.qpn.value != 0 &&
                           (s.opmod == 0 || is_masked_atomic(static_cast<Opcode>(s.opcode)));
    if (!plausible) return false;
    wrong(fmt::format("the ctrl segment makes no sense, but with {} swapped it is {}, index {}, "
                      "QPN 0x{:x}, ds {}",
                      swapped, mlx5::opcode_name(s.opcode), s.wqe_index, s.qpn.value, s.ds),
          fmt::format("decode with --words {} if these are words that a little-endian host "
                      "printed, otherwise store the fields big-endian",
                      words));
    return true;
  }

  void check_opcode() {
    if (is_known(ctrl_.opcode)) {
      if (is_masked_atomic(opcode_) && operand_bytes() == 0) {
        wrong(fmt::format("opmod 0x{:02x} gives a masked atomic no operand size", ctrl_.opmod),
              "set opmod to 0x08 for operands of 4 bytes or to 0x09 for 8 bytes");
      }
      return;
    }
    wrong(fmt::format("opcode 0x{:02x} is not a send opcode", ctrl_.opcode),
          "build the first word as opmod << 24 | wqe_index << 8 | opcode, and store it big-endian");
  }

  void check_queue() {
    if (ctrl_.qpn.value == 0) {
      wrong("qpn is 0, which is never a queue pair's number",
            "build the second word as qpn << 8 | ds, and store it big-endian");
    } else if (expected_.qpn && ctrl_.qpn.value != *expected_.qpn) {
      const std::uint32_t qpn = ctrl_.qpn.value;
      const std::uint32_t reversed = swap_bytes(qpn << 8);
      wrong(fmt::format(
                "qpn is 0x{:x}{}, not 0x{:x}", qpn,
                reversed == *expected_.qpn ? ", the expected number with its bytes swapped" : "",
                *expected_.qpn),
            reversed == *expected_.qpn
                ? "store qpn << 8 | ds as one big-endian word"
                : "write the number of the queue pair whose ring holds the WQE");
    }
    if (expected_.index) check_index(*expected_.index);
    if ((ctrl_.fm_ce_se >> 5) > 4) {
      note(fmt::format("fence mode {} is reserved", ctrl_.fm_ce_se >> 5));
    }
    if ((ctrl_.fm_ce_se >> 2 & 3) < 2) {
      note("no CQE says that this WQE succeeded: the CQE of a later WQE must be awaited");
    }
  }

  void check_index(std::uint64_t index) {
    const auto wire = static_cast<std::uint16_t>(index);
    const std::uint16_t is = ctrl_.wqe_index;
    if (is == wire) return;
    std::string which = fmt::format("wqe_index is {}, but that of index {} is {}", is, index, wire);
    if (expected_.depth) {
      which += fmt::format(" (slot {} of {})", index % *expected_.depth, *expected_.depth);
    }
    if (is == swap_bytes(wire)) {
      wrong(
          which + ": its bytes are swapped",
          "build the first word as opmod << 24 | wqe_index << 8 | opcode, and store it big-endian");
    } else if (expected_.depth && is == index % *expected_.depth) {
      wrong(which + ": the slot's number stands in its place",
            "write the low 16 bits of the index and not the index modulo the depth");
    } else if (expected_.depth && is % *expected_.depth == index % *expected_.depth) {
      wrong(which + ": it is right for the slot, but of another lap",
            "write this index's WQE before the doorbell announces it; what lies there is stale");
    } else {
      wrong(which + ": the index is not the slot's",
            "write into each WQE the low 16 bits of the index of its first slot");
    }
  }

  // ---- ds ----

  std::uint32_t operand_bytes() const {
    if (!is_masked_atomic(opcode_)) return 8;
    if (ctrl_.opmod == mlx5::kMaskedAtomic4Bytes) return 4;
    return ctrl_.opmod == mlx5::kMaskedAtomic8Bytes ? 8 : 0;
  }

  SegmentNeed need() const {
    switch (opcode_) {
      case Opcode::kRdmaWrite:
      case Opcode::kRdmaWriteImm:
      case Opcode::kRdmaRead:
        return {2, 63, 3, "ctrl, raddr, and a data segment for each piece of local memory"};
      case Opcode::kSend:
      case Opcode::kSendImm:
      case Opcode::kSendInvalidate:
        return {1, 63, 2, "ctrl, and a data segment for each piece of local memory"};
      case Opcode::kCompareSwap:
      case Opcode::kFetchAdd: return {4, 4, 4, "ctrl, raddr, atomic, data"};
      case Opcode::kMaskedFetchAdd:
        if (operand_bytes() == 0) break;
        return {4, 4, 4, "ctrl, raddr, atomic, data"};
      case Opcode::kMaskedCompareSwap:
        if (operand_bytes() == 0) break;
        if (operand_bytes() == 4) return {4, 4, 4, "ctrl, raddr, atomic with masks, data"};
        return {5, 5, 5, "ctrl, raddr, swap and compare, their masks, data"};
      case Opcode::kWait: return {2, 2, 2, "ctrl, wait"};
      case Opcode::kDump: return {2, 2, 2, "ctrl, data"};
      default: break;
    }
    return {};
  }

  void check_ds() {
    if (ctrl_.ds == 0) {
      wrong("ds is 0, which is no WQE",
            need_.why[0] == '\0'
                ? std::string("set ds to the number of 16-byte segments, the ctrl segment included")
                : fmt::format("set ds to {}: {}", need_.usual, need_.why));
    } else if (ctrl_.ds < need_.least || ctrl_.ds > need_.most) {
      wrong(fmt::format("ds is {}, but {}{} needs {}{}", ctrl_.ds, name(), opmod_suffix(),
                        need_.least == need_.most ? "" : "at least ", need_.least),
            fmt::format("set ds to {}: {}", need_.usual, need_.why));
    }
  }

  std::string opmod_suffix() const {
    return is_masked_atomic(opcode_) ? fmt::format(" with {}-byte operands", operand_bytes()) : "";
  }

  // How many segments to read: those that ds counts where it can be right, or those that there
  // should be.
  std::uint32_t segments_to_read() const {
    return ctrl_.ds >= need_.least && ctrl_.ds <= need_.most ? ctrl_.ds : need_.usual;
  }

  void check_what_is_given() {
    const std::uint32_t counted = segments_to_read() * kSegmentBytes;
    if (counted > view_.end()) {
      if (view_.end() % kSlotBytes == 0 && ctrl_.ds == segments_to_read()) {
        wrong(
            fmt::format("ds {} counts {} bytes, but {} were given", ctrl_.ds, counted, view_.end()),
            fmt::format("give all {} if the WQE is that long, otherwise lower ds",
                        count_of(slots_of(segments_to_read()), "slot")));
      } else {
        note(fmt::format("bytes {}-{} of this WQE were not given", view_.end(), counted - 1));
      }
    } else if (ctrl_.ds != 0 && view_.end() > slots_of(ctrl_.ds) * kSlotBytes) {
      note(fmt::format("bytes {}-{} lie behind this WQE and were not decoded",
                       slots_of(ctrl_.ds) * kSlotBytes, view_.end() - 1));
    }
  }

  bool has_segment(std::uint32_t segment) const {
    return view_.has(segment * kSegmentBytes, kSegmentBytes);
  }

  // ---- what follows the ctrl segment ----

  void segments() {
    switch (opcode_) {
      case Opcode::kNop: return;  // what follows is not read
      case Opcode::kRdmaWrite:
      case Opcode::kRdmaWriteImm:
        raddr(1);
        data_list(2, true);
        return;
      case Opcode::kRdmaRead:
        raddr(1);
        data_list(2, false);
        return;
      case Opcode::kSend:
      case Opcode::kSendImm:
      case Opcode::kSendInvalidate: data_list(1, true); return;
      case Opcode::kCompareSwap:
      case Opcode::kFetchAdd:
      case Opcode::kMaskedCompareSwap:
      case Opcode::kMaskedFetchAdd: atomic(); return;
      case Opcode::kWait: wait(); return;
      case Opcode::kDump:
        if (has_segment(1)) data(1);
        return;
      default: raw_segments(1); return;
    }
  }

  void raw_segments(std::uint32_t segment) {
    for (; segment < segments_to_read() && has_segment(segment); ++segment) {
      field(segment * kSegmentBytes, kSegmentBytes, "segment", "not decoded for this opcode");
    }
  }

  void raddr(std::uint32_t alignment) {
    if (!has_segment(kRaddr)) return;
    const mlx5::RaddrSeg s = mlx5::decode_raddr(view_.words(kRaddr * kSegmentBytes));
    field(16, 8, "remote_address", fmt::format("0x{:x}", s.address));
    field(24, 4, "rkey", fmt::format("0x{:08x}", s.rkey.value));
    field(28, 4, "reserved", "not looked at");
    // Where nothing is moved the remote side is not looked at.
    if (moves_nothing()) return;
    remote_address_ = s.address;
    check_key("rkey", s.rkey.value, expected_.rkey, "lkey", expected_.lkey);
    check_address("the remote address", s.address);
    if (s.address % alignment != 0) {
      wrong(fmt::format("the remote address 0x{:x} of the atomic is not a multiple of {}",
                        s.address, alignment),
            fmt::format("align the target to {} bytes", alignment));
    }
  }

  bool moves_nothing() const {
    if (need_.least == need_.most || ctrl_.ds > 3) return false;
    if (ctrl_.ds == 2) return true;
    return view_.has(32, 4) && (view_.u32(32) & ~mlx5::kInlineFlag) == 0;
  }

  void check_key(const char* what, std::uint32_t key, std::optional<std::uint32_t> expected,
                 const char* other, std::optional<std::uint32_t> other_expected) {
    if (expected && key == *expected && key != 0) return;
    if (key == 0) {
      wrong(fmt::format("{} is 0, which names no memory region", what),
            fmt::format("write the {} of the registered region", what));
    } else if (expected && key == swap_bytes(*expected)) {
      wrong(fmt::format("{} 0x{:08x} is the expected 0x{:08x} with its bytes swapped", what, key,
                        *expected),
            "swap it exactly once on its way into the WQE: it lies there little-endian, so it was "
            "swapped never or twice");
    } else if (expected && other_expected && key == *other_expected) {
      wrong(fmt::format("the {} 0x{:08x} stands in the {}'s place", other, key, what),
            fmt::format("write the {} 0x{:08x} there", what, *expected));
    } else if (expected && key >> 8 == *expected >> 8) {
      wrong(fmt::format("{} 0x{:08x} has the index of the expected 0x{:08x}, but another tag", what,
                        key, *expected),
            "use the key of the newest registration: the other's region was deregistered");
    } else if (expected) {
      wrong(fmt::format("{} is 0x{:08x}, not 0x{:08x}", what, key, *expected),
            fmt::format("write the {} of the region that the address lies in", what));
    }
  }

  void check_address(const std::string& what, std::uint64_t address) {
    if (address == 0) {
      note(what + " is 0, which is right only for a region whose addresses start at 0");
      return;
    }
    const std::uint64_t swapped = swap_bytes(address);
    if (address >= kAddressEnd && swapped >= kPageBytes && swapped < kAddressEnd) {
      wrong(fmt::format("{} 0x{:x} lies in no process, but 0x{:x}, with its bytes swapped, may",
                        what, address, swapped),
            "store the address big-endian");
    }
  }

  void check_wrap(const std::string& what, std::uint64_t address, std::uint64_t bytes) {
    if (bytes == 0 || address + (bytes - 1) >= address) return;
    wrong(fmt::format("{} from {} 0x{:x} on wrap around the end of the address space",
                      count_of(bytes, "byte"), what, address),
          "correct the address or the length");
  }

  // ---- local memory ----

  void data_list(std::uint32_t segment, bool may_be_inline) {
    const std::uint32_t end = segments_to_read();
    const std::uint32_t first = segment;
    if (segment == end) no_data(segment);
    while (segment < end && view_.has(segment * kSegmentBytes, 4)) {
      if ((view_.u32(segment * kSegmentBytes) & mlx5::kInlineFlag) != 0) {
        if (!may_be_inline) {
          not_inline(segment);
          ++segment;
        } else {
          segment += inline_data(segment, end, segment == first);
        }
      } else {
        if (!has_segment(segment)) break;
        data(segment++);
      }
    }
    if (message_bytes_ > kMaxMessageBytes) {
      const auto bytes = static_cast<std::uint32_t>(message_bytes_);
      const bool one = end - first == 1;
      wrong(fmt::format(
                "the message has {} bytes, but {} is the most{}", message_bytes_, kMaxMessageBytes,
                one && swap_bytes(bytes) <= kMaxMessageBytes
                    ? fmt::format("; with its bytes swapped, byte_count is {}", swap_bytes(bytes))
                    : ""),
            "split it into several WQEs, and store byte_count big-endian");
    } else if (remote_address_) {
      check_wrap("the remote address", *remote_address_, message_bytes_);
    }
  }

  void no_data(std::uint32_t segment) {
    if (has_segment(segment) && !view_.all(segment * kSegmentBytes, kSegmentBytes, 0)) {
      wrong(fmt::format("ds is {}, so the WQE ends before the data segment at byte {} and moves "
                        "nothing",
                        ctrl_.ds, segment * kSegmentBytes),
            fmt::format("set ds to {}: {}; leave it only if 0 bytes are meant", need_.usual,
                        need_.why));
    } else {
      note(fmt::format("ds {} leaves no data segment: 0 bytes are moved", ctrl_.ds));
    }
  }

  void not_inline(std::uint32_t segment) {
    const std::uint32_t offset = segment * kSegmentBytes;
    field(offset, 4, "byte_count", fmt::format("0x{:08x}, bit 31 set", view_.u32(offset)));
    wrong(fmt::format("byte_count has bit 31 set, which means inline data, and {} takes none",
                      name()),
          "clear bit 31 and give the length, lkey and address of local memory");
  }

  void data_fields(std::uint32_t offset, const mlx5::DataSeg& s) {
    field(offset, 4, "byte_count", count_of(s.byte_count, "byte"));
    field(offset + 4, 4, "lkey", fmt::format("0x{:08x}", s.lkey.value));
    field(offset + 8, 8, "local_address", fmt::format("0x{:x}", s.address));
  }

  // `exact`: the length that it must have, where the opcode says so.
  void data(std::uint32_t segment, std::uint32_t exact = 0) {
    const std::uint32_t offset = segment * kSegmentBytes;
    const mlx5::DataSeg s = mlx5::decode_data(view_.words(offset));
    if ((s.byte_count & mlx5::kInlineFlag) != 0) {
      not_inline(segment);
      return;
    }
    data_fields(offset, s);
    message_bytes_ += s.byte_count;
    if (view_.all(offset, kSegmentBytes, 0)) {
      wrong(fmt::format("the data segment at byte {} is all 0", offset),
            need_.least == need_.most
                ? "fill it with length, lkey and address"
                : fmt::format("fill it with length, lkey and address, or lower ds to {}", segment));
      return;
    }
    if (exact != 0 && s.byte_count != exact) {
      wrong(fmt::format("the old value has {} bytes, but byte_count is {}", exact, s.byte_count),
            fmt::format("set byte_count to {}", exact));
    } else if (s.byte_count == 0) {
      wrong(fmt::format("byte_count is 0, but the segment at byte {} names local memory", offset),
            "write the length, or post a NOP where there is nothing to move");
      return;
    }
    check_key("lkey", s.lkey.value, expected_.lkey, "rkey", expected_.rkey);
    check_address("the local address", s.address);
    check_wrap("the local address", s.address, s.byte_count);
  }

  // Returns how many segments it takes of those up to `end`.
  std::uint32_t inline_data(std::uint32_t segment, std::uint32_t end, bool alone) {
    const std::uint32_t offset = segment * kSegmentBytes;
    const std::uint32_t header = view_.u32(offset);
    const std::uint32_t bytes = header & ~mlx5::kInlineFlag;
    field(offset, 4, "inline byte_count", count_of(bytes, "byte") + ", inline");
    const std::uint64_t needed =
        (std::uint64_t{bytes} + mlx5::kInlineHeaderBytes + kSegmentBytes - 1) / kSegmentBytes;
    if (needed > end - segment) {
      std::string mend = "clear bit 31 of byte_count if it is the length of local memory";
      if (segment + needed <= 63) {
        mend = fmt::format("set ds to {} ({} before it, {} for 4 + {} bytes), or {}",
                           segment + needed, segment, needed, bytes, mend);
      }
      wrong(fmt::format("{} inline do not fit: ds {} leaves room for {}", count_of(bytes, "byte"),
                        ctrl_.ds, (end - segment) * kSegmentBytes - mlx5::kInlineHeaderBytes),
            mend);
      return end - segment;
    }
    const std::uint32_t first = offset + mlx5::kInlineHeaderBytes;
    if (bytes == 0 && alone && view_.has(first, 12) && !view_.all(first, 12, 0)) {
      const std::uint32_t swapped = swap_bytes(header);
      wrong(fmt::format("inline data of 0 bytes, but more follows; with its bytes swapped, "
                        "byte_count is {}",
                        swapped),
            "store byte_count big-endian, or write the number of inline bytes");
    }
    // As many as were given, a segment's worth a line.
    const std::uint32_t last = std::min(first + bytes, std::max(view_.end(), first));
    for (std::uint32_t at = first; at < last;) {
      const std::uint32_t line = std::min(last - at, kSegmentBytes - at % kSegmentBytes);
      field(at, line, "inline data", fmt::format("bytes {}-{}", at - first, at - first + line - 1));
      at += line;
    }
    message_bytes_ += bytes;
    return static_cast<std::uint32_t>(needed);
  }

  // ---- atomics, WAIT ----

  void atomic() {
    const std::uint32_t operand = operand_bytes();
    raddr(operand == 0 ? 1 : operand);
    if (operand == 0) {
      raw_segments(2);
      return;
    }
    if (has_segment(2)) atomic_operands(operand);
    std::uint32_t data_segment = 3;
    if (opcode_ == Opcode::kMaskedCompareSwap && operand == 8) {
      if (has_segment(3)) masks();
      data_segment = 4;
    }
    if (has_segment(data_segment)) data(data_segment, operand);
    if (remote_address_) check_wrap("the remote address", *remote_address_, operand);
  }

  void atomic_operands(std::uint32_t operand) {
    const bool add = opcode_ == Opcode::kFetchAdd || opcode_ == Opcode::kMaskedFetchAdd;
    const bool masked = is_masked_atomic(opcode_);
    if (operand == 4) {
      const auto s = mlx5::decode_masked_atomic4(view_.words(32));
      field(32, 4, add ? "add" : "swap", fmt::format("0x{:x} ({})", s.swap_or_add, s.swap_or_add));
      field(36, 4, add ? "field_boundary" : "compare",
            fmt::format("0x{:x} ({})", s.compare, s.compare));
      field(40, 4, add ? "reserved" : "swap_mask",
            add ? "not looked at" : fmt::format("0x{:x}", s.swap_mask));
      field(44, 4, add ? "reserved" : "compare_mask",
            add ? "not looked at" : fmt::format("0x{:x}", s.compare_mask));
      return;
    }
    const auto s = mlx5::decode_atomic(view_.words(32));
    field(32, 8, add ? "add" : "swap", fmt::format("0x{:x} ({})", s.swap_or_add, s.swap_or_add));
    std::string second = fmt::format("0x{:x} ({})", s.compare, s.compare);
    if (add && !masked) second = "not used by this opcode";
    field(40, 8, add && masked ? "field_boundary" : "compare", second);
  }

  void masks() {
    const auto s = mlx5::decode_atomic(view_.words(48));
    field(48, 8, "swap_mask", fmt::format("0x{:x}", s.swap_or_add));
    field(56, 8, "compare_mask", fmt::format("0x{:x}", s.compare));
  }

  void wait() {
    if (!has_segment(1)) return;
    const mlx5::WaitSeg s = mlx5::decode_wait(view_.words(16));
    field(16, 8, "reserved", "not looked at");
    field(24, 4, "max_index",
          fmt::format("{}: waits for CQE number {} of the CQ", s.max_index, s.max_index));
    field(28, 4, "cqn", fmt::format("0x{:x} ({})", s.cqn, s.cqn));
    if (s.cqn > 0xffffff) {
      const std::uint32_t swapped = swap_bytes(s.cqn);
      wrong(fmt::format("cqn 0x{:08x} has more than 24 bits{}", s.cqn,
                        swapped <= 0xffffff
                            ? fmt::format("; with its bytes swapped it is 0x{:x}", swapped)
                            : ""),
            "store the CQ's number big-endian");
    }
  }

  View view_;
  const WqeExpectations& expected_;
  mlx5::CtrlSeg ctrl_;
  Opcode opcode_ = Opcode::kNop;
  SegmentNeed need_;
  std::optional<std::uint64_t> remote_address_;  // where something is moved
  std::uint64_t message_bytes_ = 0;
  Decoded out_;
};

}  // namespace

std::optional<std::string> refuse_wqe_size(std::size_t bytes) {
  if (bytes >= kSegmentBytes && bytes <= kMaxWqeBytes && bytes % kSegmentBytes == 0) {
    return std::nullopt;
  }
  return fmt::format("a WQE is given as 16 to {} bytes, in whole segments of 16, and not as {}",
                     kMaxWqeBytes, bytes);
}

Decoded decode_wqe(std::span<const std::uint8_t> bytes, const WqeExpectations& expected) {
  return WqeDecoder(bytes, expected).run();
}

}  // namespace peal::decode
