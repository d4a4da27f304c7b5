// What joins the software NICs of a run, by what was asked for.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "ladder/roce_end.hpp"
#include "link/loopback.hpp"
#include "link/stream.hpp"

namespace peal::ladder {

// One end, as a NIC and a row see it.
struct LinkEnd {
  link::Link& link;
  verbs::SoftwarePort port;
  const char* name;
};

// Both ends, in one process.
class LocalLinks {
 public:
  // Throws peal::Error.
  explicit LocalLinks(const LadderOptions& options);

  LinkEnd sender() { return roce_sender_ ? of(*roce_sender_) : loopback(loopback_.a()); }
  LinkEnd receiver() { return roce_receiver_ ? of(*roce_receiver_) : loopback(loopback_.b()); }
  // As RoceEnd::tell.
  void tell(const std::function<void(const std::string&)>& note);

 private:
  static LinkEnd of(RoceEnd& end) { return {end.link(), end.port(), "roce"}; }
  static LinkEnd loopback(link::Link& link) { return {link, {}, "loopback"}; }

  link::Loopback loopback_;
  std::optional<link::Capture> capture_;  // of what leaves or reaches the sending end
  std::optional<RoceEnd> roce_sender_;
  std::optional<RoceEnd> roce_receiver_;
};

// One end of two processes: made, and then connected, by who talks to the other.
struct PeerLink {
  std::optional<link::StreamLink> stream;
  std::optional<RoceEnd> roce;

  LinkEnd end() {
    if (roce) return {roce->link(), roce->port(), "roce"};
    return {*stream, {}, "stream"};
  }
  void tell(const std::function<void(const std::string&)>& note) const {
    if (roce) roce->tell(note);
  }
};

}  // namespace peal::ladder
