// Peal's end of the interop tests: a software ConnectX that speaks RoCEv2, one queue pair and one
// region, told what to do line by line on standard input. Each line is answered by any number of
// lines, the last of which begins with "ok" or "failed". The Linux end, guest/guest_peer.c, knows
// the same words.
// Usage: peal_interop_peer OUR_ADDRESS PEER_ADDRESS
#include <libdeflate.h>

#include <cstdint>
#include <cstring>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "engine/threads.hpp"
#include "link/capture.hpp"
#include "link/roce.hpp"
#include "peal/device/put.hpp"
#include "peal/host/context.hpp"
#include "peal/host/memory_region.hpp"
#include "peal/host/queue_pair.hpp"
#include "peal/memory/cpu_memory.hpp"
#include "verbs/software_nic.hpp"
#include "wire/packet.hpp"

namespace peal::interop {

constexpr std::uint64_t kMemoryBytes = 2 << 20;
constexpr std::uint64_t kSinkBytes = 4096;  // behind it, where old values land
constexpr std::uint64_t kDeadlineNs = 60'000'000'000;
constexpr std::uint32_t kDepth = 512;

using Queue = SendQueue<CpuMemory, Sharing::kExclusive>;
using Words = std::vector<std::string>;

link::IpAddress address_from(const std::string& text) {
  const auto address = link::ip_address_from(text);
  if (!address) throw std::invalid_argument(text + " is no IP address");
  return *address;
}

// The word at `place`, or `absent` where there are fewer.
std::uint64_t number(const Words& words, std::size_t place,
                     std::optional<std::uint64_t> absent = {}) {
  if (place >= words.size()) {
    if (absent) return *absent;
    throw std::invalid_argument("a number is missing");
  }
  return std::stoull(words[place], nullptr, 0);
}

class Peer {
 public:
  Peer(const std::string& ours, const std::string& theirs)
      : link_({.local = address_from(ours), .udp_port = 4791, .receives_raw = true}),
        nic_({}, link_),
        engine_({nic_.step()}),
        context_(Context::open(nic_.provider(engine_))),
        memory_(kMemoryBytes + kSinkBytes),
        region_(
            MemoryRegion::create(context_, memory_.data(), memory_.size(), Access::kRemoteAll)) {
    engine_.call([&] { link_.connect({.address = address_from(theirs)}); });
  }

  std::uint32_t mtu_bytes() const { return link_.mtu_bytes(); }

  // Returns the last line of the answer.
  std::string answer(const Words& words) {
    const std::string& name = words.at(0);
    if (name == "open") return open(words);
    if (name == "fill") return fill(words);
    if (name == "crc") return crc(number(words, 1), number(words, 2));
    if (name == "word") return word(number(words, 1));
    if (name == "counters") return counters();
    if (name == "capture") return capture(words);
    if (!qp_) throw std::invalid_argument("there is no queue pair yet, or no such word");
    if (name == "connect") return connect(words);
    if (name == "state") return std::string("ok state=") + queue_pair_state_name(qp_->state());
    return operate(words);
  }

 private:
  // ---- Queue pair ------------------------------------------------------------------------------

  // open PSN ACK_TIMEOUT RETRY_COUNT: a new queue pair in place of the last, whose first packet
  // will have this PSN.
  std::string open(const Words& words) {
    queue_.reset();
    qp_.reset();
    qp_ = QueuePair::create(context_,
                            {.depth = kDepth,
                             .ack_timeout = static_cast<std::uint8_t>(number(words, 2)),
                             .retry_count = static_cast<std::uint8_t>(number(words, 3)),
                             .first_psn = Psn(static_cast<std::uint32_t>(number(words, 1)))});
    std::ostringstream out;
    out << "ok qpn=" << qp_->address().qpn.value << " psn=" << qp_->address().psn.value
        << " rkey=" << region_.rkey().value << " address=" << region_.address()
        << " bytes=" << kMemoryBytes;
    return out.str();
  }

  // connect QPN PSN MTU_BYTES
  std::string connect(const Words& words) {
    qp_->connect({.qpn = Qpn(static_cast<std::uint32_t>(number(words, 1))),
                  .psn = Psn(static_cast<std::uint32_t>(number(words, 2))),
                  .lid = context_.lid(),
                  .mtu_bytes = static_cast<std::uint32_t>(number(words, 3))});
    queue_.emplace(qp_->handle());
    return "ok";
  }

  // OPERATION OFFSET BYTES ADDRESS RKEY [COUNT [VALUE [COMPARE]]]: COUNT of them at once, each
  // behind the last in both memories; an atomic always on the same word. VALUE: of an immediate, to
  // add, to swap.
  std::string operate(const Words& words) {
    const std::string& name = words[0];
    const std::uint64_t offset = number(words, 1), bytes = number(words, 2);
    const std::uint64_t count = number(words, 5, 1), value = number(words, 6, 0);
    const auto rkey = Rkey(static_cast<std::uint32_t>(number(words, 4)));
    check_inside(offset, bytes);
    check_inside(offset, count * bytes);
    if (count == 0 || count > kDepth) throw std::invalid_argument("the count is out of range");
    const std::uint64_t begin_ns = CpuMemory::now_ns();
    Posted posted;
    Status status = Status::kOk;
    for (std::uint64_t i = 0; i != count && status == Status::kOk; ++i) {
      const std::uint64_t local = region_.address() + offset + i * bytes;
      const std::uint64_t remote = number(words, 3) + i * bytes;
      const AtomicTarget target{
          number(words, 3), rkey, {region_.address() + kMemoryBytes, region_.lkey()}};
      if (name == "write" && bytes != 0) {
        const Put put{local, region_.lkey(), remote, rkey, bytes};
        status = peal::put(*queue_, put, &posted, kDeadlineNs);
      } else if (name == "write") {
        status = post_write(mlx5::Opcode::kRdmaWrite, {local, region_.lkey(), remote, rkey, 0}, 0,
                            &posted);
      } else if (name == "write_immediate") {
        status =
            post_write(mlx5::Opcode::kRdmaWriteImm, {local, region_.lkey(), remote, rkey, bytes},
                       static_cast<std::uint32_t>(value), &posted);
      } else if (name == "read") {
        const Get get{local, region_.lkey(), remote, rkey, bytes};
        status = peal::get(*queue_, get, &posted, kDeadlineNs);
      } else if (name == "fetch_add") {
        status = peal::fetch_add(*queue_, {target, value}, &posted, kDeadlineNs);
      } else if (name == "compare_swap") {
        status =
            peal::compare_swap(*queue_, {target, number(words, 7), value}, &posted, kDeadlineNs);
      } else {
        throw std::invalid_argument("there is no such word");
      }
    }
    if (status == Status::kOk) status = peal::wait(*queue_, posted.ticket, kDeadlineNs);
    return outcome(status, CpuMemory::now_ns() - begin_ns);
  }

  // What the library's PUTs never are: of 0 bytes, or with an immediate.
  Status post_write(mlx5::Opcode opcode, const Put& put, std::uint32_t immediate, Posted* posted) {
    Reservation r;
    const Status status = queue_->reserve(1, &r, kDeadlineNs);
    if (status != Status::kOk) return status;
    mlx5::CtrlSeg ctrl;
    ctrl.wqe_index = static_cast<std::uint16_t>(r.first);
    ctrl.opcode = static_cast<std::uint8_t>(opcode);
    ctrl.qpn = queue_->handle().qpn;
    ctrl.ds = 3;
    ctrl.fm_ce_se = mlx5::kCompletionAlways;
    ctrl.imm = immediate;
    mlx5::RaddrSeg raddr;
    raddr.address = put.remote_address;
    raddr.rkey = put.rkey;
    mlx5::DataSeg data;
    data.byte_count = static_cast<std::uint32_t>(put.bytes);
    data.lkey = put.lkey;
    data.address = put.local_address;
    queue_->write_segment(r.first, 0, mlx5::encode(ctrl));
    queue_->write_segment(r.first, 1, mlx5::encode(raddr));
    queue_->write_segment(r.first, 2, mlx5::encode(data));
    posted->ticket = r.first;
    return queue_->publish(r, kDeadlineNs);
  }

  std::string outcome(Status status, std::uint64_t ns) const {
    std::uint64_t old_value = 0;
    std::memcpy(&old_value, &memory_[kMemoryBytes], sizeof old_value);
    std::ostringstream out;
    out << (status == Status::kOk ? "ok" : "failed")
        << " seconds=" << static_cast<double>(ns) * 1e-9;
    if (status == Status::kOk) {
      out << " old=" << old_value;
    } else if (status == Status::kCompletionError) {
      const LatchedError error = decode_error(qp_->counters().error);
      out << " syndrome=" << int{error.syndrome} << " vendor=" << int{error.vendor_syndrome};
    }
    out << ' ' << status_name(status);
    return out.str();
  }

  // ---- Memory ----------------------------------------------------------------------------------

  static void check_inside(std::uint64_t offset, std::uint64_t bytes) {
    if (offset > kMemoryBytes || bytes > kMemoryBytes - offset) {
      throw std::invalid_argument("that is more than it has");
    }
  }

  std::string crc(std::uint64_t offset, std::uint64_t bytes) const {
    check_inside(offset, bytes);
    return "ok crc=" + std::to_string(libdeflate_crc32(0, memory_.data() + offset, bytes));
  }

  // fill OFFSET BYTES SEED
  std::string fill(const Words& words) {
    const std::uint64_t offset = number(words, 1), bytes = number(words, 2);
    check_inside(offset, bytes);
    auto seed = static_cast<std::uint32_t>(number(words, 3));
    for (std::uint64_t i = 0; i != bytes; ++i) {
      seed = seed * 1664525u + 1013904223u;
      memory_[offset + i] = static_cast<std::byte>(seed >> 24);
    }
    return crc(offset, bytes);
  }

  std::string word(std::uint64_t offset) const {
    check_inside(offset, 8);
    std::uint64_t value = 0;
    std::memcpy(&value, &memory_[offset], sizeof value);
    return "ok word=" + std::to_string(value);
  }

  // ---- What it has seen ------------------------------------------------------------------------

  std::string counters() {
    link::RoceCounters c;
    nic::DropCounters drops;
    engine_.call([&] {
      c = link_.counters();
      drops = nic_.core().drops();
    });
    std::ostringstream out;
    out << "ok sent=" << c.sent_packets << " received=" << c.received_packets
        << " dropped=" << c.all_dropped() << " icrc=" << c.of(wire::Malformed::kIcrc)
        << " stranger=" << c.of(link::RoceDrop::kStranger) << " overflowed=" << c.overflowed
        << " unsendable=" << c.unsendable << " too_long=" << c.too_long
        << " unreachable=" << c.unreachable << " unknown_qp=" << drops.unknown_qp;
    return out.str();
  }

  // capture FILE: from now on, in place of the last; without a file it ends.
  std::string capture(const Words& words) {
    auto next = words.size() > 1 ? std::make_unique<link::Capture>(words[1]) : nullptr;
    engine_.call([&] { link_.capture_to(next.get()); });
    capture_.swap(next);
    return "ok";
  }

  std::unique_ptr<link::Capture> capture_;
  link::RoceLink link_;
  verbs::SoftwareNic nic_;
  engine::ThreadsEngine engine_;  // after what it steps, before what calls it
  Context context_;
  std::vector<std::byte> memory_;
  MemoryRegion region_;
  std::optional<QueuePair> qp_;
  std::optional<Queue> queue_;
};

int serve(const std::string& ours, const std::string& theirs) {
  Peer peer(ours, theirs);
  std::cout << "ok mtu=" << peer.mtu_bytes() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    Words words;
    for (std::string word; in >> word;) words.push_back(word);
    std::string answer;
    try {
      answer = words.empty() ? "failed: there is no word" : peer.answer(words);
    } catch (const std::exception& e) {
      answer = std::string("failed: ") + e.what();
    }
    std::cout << answer << std::endl;
  }
  return 0;
}

}  // namespace peal::interop

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::cerr << "usage: peal_interop_peer OUR_ADDRESS PEER_ADDRESS\n";
    return 2;
  }
  return peal::interop::serve(argv[1], argv[2]);
} catch (const std::exception& e) {
  std::cout << "failed: " << e.what() << std::endl;
  return 5;
}
