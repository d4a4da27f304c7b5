// One end's link of a run over RoCEv2, with what stands in front of it: the faults asked for, and
// the file that its packets go to.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "ladder/options.hpp"
#include "link/capture.hpp"
#include "link/impaired.hpp"
#include "link/roce.hpp"
#include "verbs/software.hpp"

namespace peal::ladder {

// What an end tells the other of itself.
struct RoceAddress {
  link::IpAddress address;
  std::uint16_t udp_port = 0;
  std::uint64_t receive_buffer_bytes = 0;
  std::uint32_t mtu_bytes = 0;

  bool operator==(const RoceAddress&) const = default;
};

nlohmann::json to_json(const RoceAddress& a);
// What the peer of a control connection between `mine` and `its` told. Throws PeerError where
// packets could not reach it, or where it is none that a RoceLink tells; and what the JSON library
// throws.
RoceAddress roce_address_from(const nlohmann::json& j, const link::IpAddress& mine,
                              const link::IpAddress& its);

enum class RunEnd : std::uint8_t { kSender, kReceiver };

class RoceEnd {
 public:
  // Binds. `capture` may be null, and must outlive it. Throws peal::Error.
  RoceEnd(const LadderOptions& options, const link::IpAddress& local, std::uint16_t udp_port,
          RunEnd end, link::Capture* capture);

  RoceAddress address() const;
  void connect(const RoceAddress& peer);

  // For the NIC.
  link::Link& link() { return impaired_ ? static_cast<link::Link&>(*impaired_) : roce_; }
  verbs::SoftwarePort port() const;

  // A line on the packets that were lost or dropped here by no fault asked for, and one where the
  // link ended; nothing else. When no engine steps the NIC any more.
  void tell(const std::function<void(const std::string&)>& note) const;

 private:
  link::IpAddress local_;
  link::RoceLink roce_;
  std::optional<link::ImpairedLink> impaired_;
};

// Writes what is left, and says if that failed.
void close_capture(link::Capture& capture, const std::function<void(const std::string&)>& note);

// "3 packets dropped: 2 not from the peer, 1 of another partition"; empty where there were none.
std::string text_of_drops(const link::RoceCounters& counters);

}  // namespace peal::ladder
