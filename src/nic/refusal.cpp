// The sentence behind each refusal.
#include "nic/check.hpp"

namespace peal::nic {

const char* refusal_text(Refusal reason) {
  switch (reason) {
    case Refusal::kNone: return "nothing refused";
    case Refusal::kWqeIndex: return "the WQE's index is not its slot's";
    case Refusal::kWqeQpn: return "the WQE names another QP";
    case Refusal::kWqeSize: return "the WQE's ds is 0 or above the largest WQE";
    case Refusal::kWqeCrossesProducerIndex: return "the WQE reaches beyond the producer index rung";
    case Refusal::kOpcode: return "the WQE's opcode is not one that this NIC executes";
    case Refusal::kWqeSegments: return "the WQE's ds is not what its opcode needs";
    case Refusal::kInlineFlag:
      return "the data segment's length has bit 31 set, which means inline data";
    case Refusal::kLkeyUnknown: return "the lkey names no memory region";
    case Refusal::kLkeySwapped: return "the lkey is byte-swapped: keys are host order in the API";
    case Refusal::kLkeyStale: return "the lkey's tag is stale: its region was deregistered";
    case Refusal::kLkeyOtherPd: return "the lkey belongs to another protection domain";
    case Refusal::kLocalRange: return "the local buffer lies outside its memory region";
    case Refusal::kMessageTooLong: return "the message is longer than the QP's log_msg_max allows";
    case Refusal::kRkeyUnknown: return "the rkey names no memory region of the peer";
    case Refusal::kRkeySwapped: return "the rkey is byte-swapped: keys are host order in the API";
    case Refusal::kRkeyStale: return "the rkey's tag is stale: its region was deregistered";
    case Refusal::kRkeyOtherPd: return "the rkey belongs to another protection domain than the QP";
    case Refusal::kRemoteRange: return "the remote range lies outside its memory region";
    case Refusal::kRemoteAccess: return "the remote region does not allow remote writes";
    case Refusal::kRemoteWriteDisabled: return "the responder's QP does not accept remote writes";
    case Refusal::kDoorbellQpn: return "the doorbell names a QP that is not bound to its UAR";
    case Refusal::kDoorbellJump: return "the doorbell moves back or further than the ring is deep";
    case Refusal::kDoorbellWithoutRecord: return "a doorbell was rung without its doorbell record";
    case Refusal::kRecordWithoutDoorbell:
      return "the doorbell record moved on without a doorbell: the NIC does not look";
    case Refusal::kSequence: return "the peer expects another PSN";
    case Refusal::kNoAnswer: return "the peer does not answer";
    case Refusal::kInjected: return "an injected fault";
    case Refusal::kCount: break;
  }
  return "unknown refusal";
}

}  // namespace peal::nic
