#include "decode/cqe.hpp"

#include <fmt/format.h>

#include <string_view>

#include "peal/mlx5/cqe.hpp"
#include "peal/mlx5/wqe.hpp"

namespace peal::decode {
namespace {

using mlx5::CqeOpcode;
using mlx5::kCqeBytes;
using mlx5::Syndrome;

const char* opcode_text(CqeOpcode opcode) {
  switch (opcode) {
    case CqeOpcode::kRequester: return "requester, a send WQE is done";
    case CqeOpcode::kResponderWriteImm: return "responder, an RDMA write with immediate arrived";
    case CqeOpcode::kResponderSend: return "responder, a send arrived";
    case CqeOpcode::kResponderSendImm: return "responder, a send with immediate arrived";
    case CqeOpcode::kResponderSendInvalidate: return "responder, a send with invalidate arrived";
    case CqeOpcode::kResizeCq: return "the CQ was resized";
    case CqeOpcode::kSignatureError: return "signature error";
    case CqeOpcode::kRequesterError: return "requester error";
    case CqeOpcode::kResponderError: return "responder error";
    case CqeOpcode::kInvalid: return "invalid, not written yet";
  }
  return "unknown opcode";
}

bool is_error(CqeOpcode opcode) {
  return opcode == CqeOpcode::kRequesterError || opcode == CqeOpcode::kResponderError;
}

bool is_responder(CqeOpcode opcode) {
  return (opcode >= CqeOpcode::kResponderWriteImm &&
          opcode <= CqeOpcode::kResponderSendInvalidate) ||
         opcode == CqeOpcode::kResponderError;
}

bool is_known(CqeOpcode opcode) {
  return std::string_view(opcode_text(opcode)) != "unknown opcode";
}

bool is_known_syndrome(std::uint8_t syndrome) {
  return syndrome != 0 && std::string_view(mlx5::syndrome_name(syndrome)) != "unknown syndrome";
}

const char* format_text(unsigned format) {
  switch (format) {
    case 0: return "nothing inline";
    case 1: return "32 bytes of data inline";
    case 2: return "64 bytes of data inline";
    default: return "compressed: mini CQEs follow";
  }
}

struct Cause {
  const char* what;
  const char* mend;
};

Cause cause_of(std::uint8_t syndrome) {
  switch (static_cast<Syndrome>(syndrome)) {
    case Syndrome::kLocalLength:
      return {"a length is not one that the queue pair allows",
              "keep each message within the QP's log_msg_max and, for a receive, within the "
              "posted buffer"};
    case Syndrome::kLocalQpOperation:
      return {
          "the NIC could not execute the WQE itself: its opcode, ds, index or QPN, or the "
          "state of the QP",
          "dump the WQE that wqe_counter names and decode it with peal decode wqe"};
    case Syndrome::kLocalProtection:
      return {
          "the lkey names no region, one of another protection domain, or one that does not "
          "cover the local buffer",
          "check that the lkey is swapped exactly once, that its region is still registered, "
          "and that address and length lie inside it"};
    case Syndrome::kFlushed:
      return {"the QP was in the error state before this WQE was executed",
              "look for the first error CQE of this QP, whose syndrome is another, and reset the "
              "QP"};
    case Syndrome::kMemoryWindowBind:
      return {"a memory window could not be bound",
              "check the window's region, its access rights and its range"};
    case Syndrome::kBadResponse:
      return {"the peer's answer did not fit the request",
              "check that both ends' queue pairs name each other and agree on PSN and MTU"};
    case Syndrome::kLocalAccess:
      return {"the responder could not access its own memory",
              "check the lkey and the range of the posted receive"};
    case Syndrome::kRemoteInvalidRequest:
      return {"the peer refused the request itself",
              "check that the peer's QP allows writes, reads or atomics (rwe, rre, rae), that an "
              "atomic is aligned, and that a message fits the receive it consumes"};
    case Syndrome::kRemoteAccess:
      return {
          "the peer refused the access: its rkey names no region, the range is not covered, "
          "or a right is missing",
          "check that the rkey is swapped exactly once, that its region is still registered "
          "at the peer, covers address and length, and has the remote access right"};
    case Syndrome::kRemoteOperation:
      return {"the peer could not complete the operation because of an error of its own",
              "look at the peer's CQEs and log"};
    case Syndrome::kTransportRetryExceeded:
      return {"the peer did not acknowledge, however often the request was sent",
              "check that the peer's process and QP still exist, that its QP is ready to receive, "
              "and that LID or GID, QPN and PSN are those of this connection"};
    case Syndrome::kRnrRetryExceeded:
      return {"the peer had no receive posted",
              "post receives before sends and writes with immediate arrive, or raise rnr_retry"};
    case Syndrome::kRemoteAborted:
      return {"the peer gave the operation up", "look at the state of the peer's QP and its log"};
    case Syndrome::kNone: break;
  }
  return {"the syndrome is not one of those in rdma-core",
          "check that these are the bytes of an error CQE, in memory order"};
}

class CqeDecoder {
 public:
  CqeDecoder(std::span<const std::uint8_t> bytes, const CqeExpectations& expected)
      : view_(bytes, static_cast<std::uint32_t>(kCqeBytes - bytes.size())), expected_(expected) {
    fields_ = fields_at(view_);
  }

  Decoded run() {
    title();
    if (whole()) first_fields();
    last_fields();
    if (!whole()) note("the 16 bytes were taken as the last of the CQE, from byte 48 on");
    if (looks_swapped()) return std::move(out_);
    check_opcode();
    check_lap();
    return std::move(out_);
  }

 private:
  static mlx5::CqeFields fields_at(const View& view) {
    mlx5::Cqe cqe;
    for (std::uint32_t i = 0; i < kCqeBytes / 4; ++i) {
      if (view.has(4 * i, 4)) cqe.word[i] = swap_bytes(view.u32(4 * i));
    }
    return mlx5::decode(cqe);
  }

  void field(std::uint32_t offset, std::uint32_t size, std::string name, std::string meaning) {
    out_.fields.push_back({offset, view_.hex(offset, size), std::move(name), std::move(meaning)});
  }
  void wrong(std::string what, std::string mend) {
    out_.findings.push_back({std::move(what), std::move(mend)});
  }
  void note(std::string what) { out_.findings.push_back({std::move(what), ""}); }

  bool whole() const { return view_.has(0, kCqeBytes); }

  static std::string summary(const mlx5::CqeFields& f) {
    return fmt::format(
        "{}{}, WQE counter {}, QPN 0x{:x}", opcode_text(f.opcode),
        is_error(f.opcode) ? fmt::format(", {}", mlx5::syndrome_name(f.syndrome)) : "",
        f.wqe_counter, f.qpn.value);
  }

  void title() {
    if (fields_.opcode == CqeOpcode::kInvalid) {
      out_.title = "CQE: invalid, not written yet";
      return;
    }
    out_.title = "CQE: " + summary(fields_);
  }

  void first_fields() {
    const std::uint32_t user = view_.u32(32) & 0xffffff;
    field(32, 4, "srqn_user_index", fmt::format("0x{:x} ({})", user, user));
    const CqeOpcode opcode = fields_.opcode;
    field(36, 4, "imm_inval_pkey",
          opcode >= CqeOpcode::kResponderWriteImm &&
                  opcode <= CqeOpcode::kResponderSendInvalidate &&
                  opcode != CqeOpcode::kResponderSend
              ? fmt::format("0x{:08x}", view_.u32(36))
              : "not used by this opcode");
    field(44, 4, "byte_cnt", byte_count_text());
  }

  std::string byte_count_text() const {
    if (is_error(fields_.opcode) || fields_.opcode == CqeOpcode::kInvalid) {
      return "not used by this opcode";
    }
    return fmt::format("{} bytes{}", fields_.byte_count,
                       fields_.opcode == CqeOpcode::kRequester
                           ? ", which means something for reads and atomics only"
                           : "");
  }

  void last_fields() {
    if (is_error(fields_.opcode)) {
      field(52, 1, "hw_err_synd", fmt::format("0x{:02x}, the vendor's", view_.u8(52)));
      field(53, 1, "hw_synd_type", fmt::format("0x{:02x}, the vendor's", view_.u8(53)));
      field(54, 1, "vendor_err_synd",
            fmt::format("0x{:02x}, the vendor's", fields_.vendor_syndrome));
      field(55, 1, "syndrome",
            fmt::format("0x{:02x}, {}", fields_.syndrome, mlx5::syndrome_name(fields_.syndrome)));
    } else {
      field(48, 8, "timestamp", fmt::format("{}", view_.be(48, 8)));
    }
    field(56, 1, "wqe_opcode",
          is_responder(fields_.opcode) ? "not a send opcode, as the CQE is a responder's"
                                       : fmt::format("0x{:02x}, {}", fields_.wqe_opcode,
                                                     mlx5::opcode_name(fields_.wqe_opcode)));
    field(57, 3, "qpn", fmt::format("0x{:x} ({})", fields_.qpn.value, fields_.qpn.value));
    field(60, 2, "wqe_counter", counter_text());
    field(62, 1, "signature", fmt::format("0x{:02x}", view_.u8(62)));
    const unsigned op_own = view_.u8(63);
    field(63, 1, "op_own",
          fmt::format("opcode 0x{:x} ({}), format {} ({}), solicited {}, owner {}", op_own >> 4,
                      opcode_text(fields_.opcode), op_own >> 2 & 3, format_text(op_own >> 2 & 3),
                      op_own >> 1 & 1, op_own & 1));
  }

  std::string counter_text() const {
    std::string text = fmt::format("{}", fields_.wqe_counter);
    const std::uint16_t swapped = swap_bytes(fields_.wqe_counter);
    if (swapped != fields_.wqe_counter) {
      text += fmt::format(" ({} where it is printed without swapping its bytes)", swapped);
    }
    return text;
  }

  // ---- findings ----

  // Whether the fields can be those of one CQE: what a dump in another order mostly fails.
  static bool is_sensible(const mlx5::CqeFields& f) {
    const bool wqe = std::string_view(mlx5::opcode_name(f.wqe_opcode)) != "unknown opcode";
    switch (f.opcode) {
      case CqeOpcode::kRequester: return wqe;
      case CqeOpcode::kRequesterError: return wqe && is_known_syndrome(f.syndrome);
      case CqeOpcode::kResponderError: return is_known_syndrome(f.syndrome);
      default: return is_known(f.opcode);
    }
  }

  bool looks_swapped() {
    return explain_swap(4, "the bytes of each 4-byte word", "le") ||
           explain_swap(8, "the bytes of each 8-byte word", "le64");
  }

  bool explain_swap(std::uint32_t step, const char* swapped_words, const char* words) {
    std::vector<std::uint8_t> bytes;
    const std::uint32_t begin = view_.end() - static_cast<std::uint32_t>(kCqeTailBytes);
    for (std::uint32_t word = begin; word < view_.end(); word += step) {
      for (std::uint32_t i = step; i-- > 0;) bytes.push_back(view_.u8(word + i));
    }
    const mlx5::CqeFields s = fields_at(View(bytes, begin));
    // A success says so little of itself that it convinces only in the place of no opcode at all.
    const bool makes_sense_now =
        is_sensible(s) && ((is_error(s.opcode) && !is_sensible(fields_)) ||
                           (s.opcode == CqeOpcode::kRequester && !is_known(fields_.opcode)));
    const bool is_the_expected_qp = is_sensible(s) && expected_.qpn &&
                                    s.qpn.value == *expected_.qpn &&
                                    fields_.qpn.value != *expected_.qpn;
    if (!makes_sense_now && !is_the_expected_qp) return false;
    wrong(fmt::format("with {} swapped this is {}", swapped_words, summary(s)),
          fmt::format("decode with --words {} if these are words that a little-endian host printed",
                      words));
    return true;
  }

  void check_opcode() {
    if (fields_.opcode == CqeOpcode::kInvalid) {
      note("this entry was not written since the ring was set up or last handed back");
      return;
    }
    if (!is_known(fields_.opcode)) {
      wrong(fmt::format("opcode 0x{:x} is no CQE's", static_cast<unsigned>(fields_.opcode)),
            "check that these are the bytes of one CQE, in memory order");
      return;
    }
    if (fields_.opcode == CqeOpcode::kSignatureError) {
      wrong("a signature check failed",
            "look at the signature error's own fields, not decoded here");
    }
    if (is_error(fields_.opcode)) {
      const Cause cause = cause_of(fields_.syndrome);
      wrong(fmt::format("{} (syndrome 0x{:02x}): {}", mlx5::syndrome_name(fields_.syndrome),
                        fields_.syndrome, cause.what),
            cause.mend);
    }
    if (expected_.qpn && fields_.qpn.value != *expected_.qpn) {
      wrong(fmt::format("qpn is 0x{:x}, not 0x{:x}", fields_.qpn.value, *expected_.qpn),
            "look in the CQ of the queue pair that is meant, or for whose else the CQ is");
    }
  }

  void check_lap() {
    if (!expected_.number || !expected_.entries) return;
    const std::uint64_t number = *expected_.number;
    const std::uint64_t entries = *expected_.entries;
    const std::uint8_t owner = mlx5::cqe_owner(number, entries);
    const std::string where = fmt::format("CQE number {} lies in entry {} on lap {}, with owner {}",
                                          number, number % entries, number / entries, owner);
    if (fields_.opcode == CqeOpcode::kInvalid) {
      note(where + ": not written yet");
      if (fields_.owner == owner) {
        note("the owner bit alone says that it is written: the opcode must be looked at too");
      }
    } else if (fields_.owner == owner) {
      note(where + ": written");
    } else {
      note(fmt::format("{}, but owner is {}: not written yet, what lies there is of a stale lap",
                       where, fields_.owner));
      note(
          "in a collapsed CQ the owner bit says nothing: entry 0 is overwritten each time, and "
          "wqe_counter says how far the queue is");
    }
  }

  View view_;
  const CqeExpectations& expected_;
  mlx5::CqeFields fields_;
  Decoded out_;
};

}  // namespace

std::optional<std::string> refuse_cqe_size(std::size_t bytes) {
  if (bytes == kCqeBytes || bytes == kCqeTailBytes) return std::nullopt;
  if (bytes == 128) {
    return "a CQE of 128 bytes holds its fields in its last 64: give those alone";
  }
  return fmt::format("a CQE is given as its {} bytes or its last {}, and not as {}", kCqeBytes,
                     kCqeTailBytes, bytes);
}

Decoded decode_cqe(std::span<const std::uint8_t> bytes, const CqeExpectations& expected) {
  return CqeDecoder(bytes, expected).run();
}

}  // namespace peal::decode
