// Holds a QP's doorbell record against its doorbells now and then: a client whose record lags
// behind its doorbell, or runs ahead of it, for a whole grace period is one that hardware would
// lose.
#pragma once

#include <cstdint>

namespace peal::nic {

class RecordCheck {
 public:
  enum class Verdict : std::uint8_t { kAgree, kDoorbellWithoutRecord, kRecordWithoutDoorbell };

  bool due(std::uint64_t now_ns) const { return now_ns >= next_ns_; }
  void again_at(std::uint64_t ns) { next_ns_ = ns; }

  // `record` is what the client's memory says now, `posted` what its doorbells have announced. Only
  // a difference that has not moved since the last look counts.
  Verdict look(std::uint16_t record, std::uint64_t posted) {
    const bool settled = record == record_ && posted == posted_;
    record_ = record;
    posted_ = posted;
    const auto ahead = static_cast<std::int16_t>(record - static_cast<std::uint16_t>(posted));
    if (!settled || ahead == 0) return Verdict::kAgree;
    return ahead > 0 ? Verdict::kRecordWithoutDoorbell : Verdict::kDoorbellWithoutRecord;
  }

 private:
  std::uint64_t next_ns_ = 0;
  std::uint64_t posted_ = 0;  // at the last look, as is record_
  std::uint16_t record_ = 0;
};

}  // namespace peal::nic
