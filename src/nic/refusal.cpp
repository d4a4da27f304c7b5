#include "nic/refusal.hpp"

namespace peal::nic {
namespace {

struct Rule {
  const char* name;
  const char* text;
};

// In the order of the enumeration.
constexpr Rule kRules[kRefusals] = {
    {"none", "nothing refused"},
    {"wqe-index", "the WQE's index is not its slot's"},
    {"wqe-qpn", "the WQE names another QP"},
    {"wqe-size", "the WQE's ds is 0 or above the largest WQE"},
    {"wqe-crosses-pi", "the WQE reaches beyond the producer index rung"},
    {"opcode", "the WQE's opcode is not one that this NIC executes"},
    {"wqe-segments", "the WQE's ds is not what its opcode needs"},
    {"inline-length", "the inline data are longer than the WQE's ds leaves room for"},
    {"inline-flag",
     "the data segment's length has bit 31 set, which means inline data, where none may be"},
    {"lkey-unknown", "the lkey names no memory region"},
    {"lkey-swapped", "the lkey is byte-swapped: keys are host order in the API"},
    {"lkey-stale", "the lkey's tag is stale: its region was deregistered"},
    {"lkey-other-pd", "the lkey belongs to another protection domain"},
    {"local-range", "the local buffer lies outside its memory region"},
    {"local-access",
     "the local region does not allow local writes, and the answer must land there"},
    {"message-too-long", "the message is longer than the QP's log_msg_max allows"},
    {"atomic-size", "the local buffer of the atomic's old value is not as long as its operand"},
    {"atomic-opmod", "the masked atomic's opmod is neither 0x08 (4 bytes) nor 0x09 (8 bytes)"},
    {"not-on-this-link", "the link to the peer has no opcode for masked atomics"},
    {"wait-cq", "the WAIT names a CQ that does not exist"},
    {"wait-forever", "the WAIT has been held for the whole grace period: its CQ does not move"},
    {"reads-in-flight",
     "more reads and atomics are in flight than the QP's log_sra_max allows: they wait"},
    {"unsignalled-chain",
     "as many WQEs in a row as the ring has slots ask for no CQE: none of them can be reused"},
    {"slot-overwritten", "the WQE's slot was overwritten before its CQE"},
    {"cq-overrun", "the CQ is full: its consumer record does not move on"},
    {"cq-record", "the CQ's consumer record is ahead of the CQEs written"},
    {"cq-too-small", "more CQEs can be outstanding than the CQ has entries, and oi is set"},
    {"cqe-scribbled", "the CQ entry was written to by the client: its owner bit is not the lap's"},
    {"rkey-unknown", "the rkey names no memory region of the peer"},
    {"rkey-swapped", "the rkey is byte-swapped: keys are host order in the API"},
    {"rkey-stale", "the rkey's tag is stale: its region was deregistered"},
    {"rkey-other-pd", "the rkey belongs to another protection domain than the QP"},
    {"remote-range", "the remote range lies outside its memory region"},
    {"remote-access", "the remote region does not allow this operation"},
    {"remote-write-disabled", "the responder's QP does not accept remote writes (rwe)"},
    {"remote-read-disabled", "the responder's QP does not accept remote reads (rre)"},
    {"remote-atomic-disabled", "the responder's QP does not accept remote atomics (rae)"},
    {"atomic-mode-off", "the responder's QP has no atomic_mode"},
    {"atomic-misaligned", "the atomic's remote address is not a multiple of its operand's size"},
    {"read-resources", "more reads and atomics arrived than the responder's log_rra_max allows"},
    {"no-receive", "an RDMA WRITE with immediate found no receive posted"},
    {"malformed-request", "the request's segments do not make a message"},
    {"responder-state", "the responder's QP is not in RTR or RTS"},
    {"wrong-source", "the responder's QP is connected to another QP"},
    {"doorbell-qpn", "the doorbell names a QP that is not bound to its UAR"},
    {"doorbell-register",
     "the doorbell was rung in the wrong register of its page: 0x800 is for QPs with a doorbell "
     "record, 0x600 for those without"},
    {"doorbell-jump", "the doorbell moves back or further than the ring is deep"},
    {"doorbell-without-record", "a doorbell was rung without its doorbell record"},
    {"record-without-doorbell",
     "the doorbell record moved on without a doorbell: the NIC does not look"},
    {"doorbell-before-rts", "a doorbell was rung before RTS: its WQEs wait"},
    {"doorbell-left-behind", "a doorbell was rung on a UAR page that is being freed"},
    {"reserved-field", "the command sets a field that this NIC does not know"},
    {"opt-param-mask", "the command's opt_param_mask has bits that this NIC does not know"},
    {"remote-refused", "the peer refused the request"},
    {"sequence", "the peer expects another PSN"},
    {"bad-response", "the peer's answer does not fit the request"},
    {"no-answer", "the peer does not answer"},
    {"injected", "an injected fault"},
};
static_assert(kRules[kRefusals - 1].name != nullptr);

}  // namespace

const char* refusal_text(Refusal reason) {
  const auto i = static_cast<std::size_t>(reason);
  return i < kRefusals ? kRules[i].text : "unknown refusal";
}

const char* refusal_name(Refusal reason) {
  const auto i = static_cast<std::size_t>(reason);
  return i < kRefusals ? kRules[i].name : "unknown";
}

std::optional<Refusal> refusal_named(std::string_view name) {
  for (std::size_t i = 1; i < kRefusals; ++i) {
    if (name == kRules[i].name) return static_cast<Refusal>(i);
  }
  return std::nullopt;
}

const char* strictness_name(Strictness level) {
  switch (level) {
    case Strictness::kOff: return "off";
    case Strictness::kWarn: return "warn";
    case Strictness::kRefuse: return "refuse";
  }
  return "unknown";
}

}  // namespace peal::nic
