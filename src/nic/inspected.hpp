// What a run asks of a NIC besides its commands, whatever memory that NIC sees and whatever runs
// it. An engine calls all of it between two steps.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "nic/counters.hpp"
#include "nic/dump.hpp"
#include "nic/faults.hpp"
#include "peal/core/types.hpp"

namespace peal::nic {

// Each function names a QP by its number; an unknown one is ignored or answers with nothing.
class Inspected {
 public:
  virtual void arm_faults(Qpn qpn, const std::vector<Fault>& faults) = 0;
  // How many armed faults have not happened.
  virtual std::uint32_t unreached_faults(Qpn qpn) const = 0;
  virtual QpCounters counters(Qpn qpn) const = 0;
  virtual std::optional<QpDump> dump(Qpn qpn) const = 0;
  // True when nothing that was announced is unfinished.
  virtual bool quiet(Qpn qpn) const = 0;

 protected:
  ~Inspected() = default;
};

}  // namespace peal::nic
