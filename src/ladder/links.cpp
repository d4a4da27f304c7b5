#include "ladder/links.hpp"

namespace peal::ladder {

LocalLinks::LocalLinks(const LadderOptions& options) {
  if (options.link != LinkKind::kRoce) return;
  if (!options.roce.capture.empty()) capture_.emplace(options.roce.capture);
  const link::IpAddress address = link::ip_address_from(options.roce.address).value();
  // A port that was named is the one that PUTs go to.
  roce_receiver_.emplace(options, address, options.roce.udp_port, RunEnd::kReceiver, nullptr);
  roce_sender_.emplace(options, address, 0, RunEnd::kSender, capture_ ? &*capture_ : nullptr);
  roce_receiver_->connect(roce_sender_->address());
  roce_sender_->connect(roce_receiver_->address());
}

void LocalLinks::tell(const std::function<void(const std::string&)>& note) {
  if (roce_sender_) roce_sender_->tell([&](const std::string& s) { note("sending end: " + s); });
  if (roce_receiver_) {
    roce_receiver_->tell([&](const std::string& s) { note("receiving end: " + s); });
  }
  if (capture_) close_capture(*capture_, note);
}

}  // namespace peal::ladder
