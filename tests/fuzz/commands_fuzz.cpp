// DevX commands and registrations, over a NIC that has one of each kind of object.
// Input: steps. Each begins with a byte that says which: a command made from one in which nothing
// is wrong, a command of arbitrary bytes, or a registration.
#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "fuzz/fuzz.hpp"
#include "nic/commands.hpp"

namespace peal::nic {
namespace {

using namespace mlx5::devx;
using test::Input;
using test::require;

constexpr CommandOpcode kOpcodes[] = {
    CommandOpcode::kCreateCq,    CommandOpcode::kDestroyCq,        CommandOpcode::kCreateQp,
    CommandOpcode::kDestroyQp,   CommandOpcode::kRst2InitQp,       CommandOpcode::kInit2RtrQp,
    CommandOpcode::kRtr2RtsQp,   CommandOpcode::kRts2RtsQp,        CommandOpcode::kInit2InitQp,
    CommandOpcode::k2ErrQp,      CommandOpcode::k2RstQp,           CommandOpcode::kQueryQp,
    CommandOpcode::kQueryHcaCap, CommandOpcode::kQueryRoceAddress,
};
constexpr std::size_t kMaxSteps = 64;
constexpr std::size_t kInBytes = 272;  // of the longest command
constexpr std::size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xa5};

alignas(4096) std::byte memory[std::size_t{1} << 16];

struct CountedEvents final : QueueEvents {
  void qp_created(std::uint32_t) override { ++qps; }
  void qp_destroyed(std::uint32_t) override { --qps; }
  void qp_reset(std::uint32_t) override {}
  bool uar_freed(const UarEntry&) override { return true; }
  bool rule_broken(Refusal reason, std::uint32_t) override {
    require(reason == Refusal::kReservedField || reason == Refusal::kOptParamMask,
            "a command breaks a rule of commands");
    return false;
  }
  void qp_receives_from(std::uint32_t, Psn) override {}
  void qp_sends_from(std::uint32_t, Psn) override {}
  void region_forgotten(std::uint32_t key) override {
    require(key != 0, "a region that is forgotten had a key");
  }
  std::uint32_t qps = 0;
};

class Device {
 public:
  Device() {
    tables_->qpn_base = 3 * kMaxQps;
    tables_->key_base = 3 * kMaxKeys;
  }

  // To be called when nothing is left of the input before.
  void begin() {
    for (KeyEntry& key : tables_->keys) key.last_key = 0;
    cqn_ = 0;
    qpn_ = 0;
    pd_ = commands_.allocate_pd();
    uar_ = commands_.allocate_uar(memory);
    umem_ = commands_.register_umem(memory, sizeof memory);
    key_ =
        commands_.register_region(pd_, 0x1000, memory, sizeof memory, kLocalWrite | kRemoteWrite);
    objects_ = commands_.objects();
  }

  void step(Input* input) {
    const auto which = input->take<std::uint8_t>();
    if (which < std::size(kOpcodes)) {
      made_command(kOpcodes[which], input);
    } else if (which < 0x80) {
      raw_command(input);
    } else {
      registration(which, input);
    }
    require(objects_.qps == events_.qps, "each QP was said to be made, and destroyed");
  }

  // Looks through all tables, which takes more time than the commands.
  void check() const {
    require(commands_.objects() == objects_,
            "a command makes or destroys one object or none, and a refused one none");
    check_users();
  }

  // Whatever is left can go, in order.
  void tear_down() {
    for (QpEntry& qp : tables_->qps) {
      if (qp.qpn != Qpn()) require(destroy(CommandOpcode::kDestroyQp, qp.qpn.value), "a QP can go");
    }
    for (std::uint32_t i = 1; i < kMaxCqs; ++i) {
      if (tables_->cqs[i].used) {
        require(destroy(CommandOpcode::kDestroyCq, i), "a CQ without QPs can go");
      }
    }
    for (std::uint32_t i = 1; i < kMaxUmems; ++i) {
      if (tables_->umems[i].memory == nullptr) continue;
      require(commands_.deregister_umem(i), "a umem without queues can go");
    }
    for (const KeyEntry& key : tables_->keys) {
      if (key.key != 0) require(commands_.deregister_region(key.key), "a region can go");
    }
    for (std::uint32_t i = 1; i < kMaxPds; ++i) {
      if (tables_->pds[i]) require(commands_.free_pd(i), "a PD without users can go");
    }
    for (std::uint32_t i = 1; i < kMaxUars; ++i) {
      if (tables_->uars[i].page != nullptr) {
        require(commands_.free_uar(i), "a UAR without users can go");
      }
    }
    require(commands_.objects() == Commands::Objects{}, "nothing is left when all is gone");
    require(events_.qps == 0, "each QP that was made was said to be destroyed");
  }

 private:
  // A command in which nothing is wrong, of the last objects made, then changed: bytes more or less
  // of input (signed, 1) and of output (signed, 1), changes (1), each where (2) and to what (1).
  void made_command(CommandOpcode opcode, Input* input) {
    const bool is_short =
        opcode == CommandOpcode::k2ErrQp || opcode == CommandOpcode::k2RstQp ||
        opcode == CommandOpcode::kDestroyQp || opcode == CommandOpcode::kDestroyCq ||
        opcode == CommandOpcode::kQueryQp || opcode == CommandOpcode::kQueryHcaCap;
    const int in_bytes = is_short ? 16 : static_cast<int>(kInBytes);
    const int out_bytes = opcode == CommandOpcode::kQueryHcaCap ? 4112
                          : opcode == CommandOpcode::kQueryQp   ? 272
                                                                : 16;
    std::vector<std::byte> in = command(opcode);
    in.resize(size_near(in_bytes, input->take<std::int8_t>(), 0));
    const std::size_t out = size_near(out_bytes, input->take<std::int8_t>(), 8);
    for (std::uint8_t changes = input->take<std::uint8_t>() % 16; changes > 0; --changes) {
      const auto at = input->take<std::uint16_t>();
      const auto value = input->take<std::uint8_t>();
      if (!in.empty()) in[at % in.size()] = std::byte{value};
    }
    execute(in, out);
  }

  // Bytes of input (2) and of output (2), and the input.
  void raw_command(Input* input) {
    std::vector<std::byte> in(input->take<std::uint16_t>() % (kInBytes + 16));
    const std::size_t out = 8 + input->take<std::uint16_t>() % 4128u;
    input->read(in.data(), in.size());
    execute(in, out);
  }

  static std::size_t size_near(int bytes, int difference, int least) {
    return static_cast<std::size_t>(std::max(bytes + difference, least));
  }

  std::vector<std::byte> command(CommandOpcode opcode) const {
    std::vector<std::byte> in(kInBytes);
    const auto put = [&in](Field field, std::uint64_t value) { set(in.data(), field, value); };
    const auto put_in = [&put](Field context, Field field, std::uint64_t value) {
      put(within(context, field), value);
    };
    put(header::opcode, static_cast<std::uint64_t>(opcode));
    switch (opcode) {
      case CommandOpcode::kQueryHcaCap:
      case CommandOpcode::kQueryRoceAddress: return in;
      case CommandOpcode::kCreateCq:
        put_in(create_cq::cq_context, cqc::uar_page, uar_);
        put_in(create_cq::cq_context, cqc::log_cq_size, 4);
        put(create_cq::cq_umem_id, umem_);
        put(create_cq::cq_umem_valid, 1);
        return in;
      case CommandOpcode::kDestroyCq: put(destroy_cq::cqn, cqn_); return in;
      case CommandOpcode::kCreateQp:
        put_in(create_qp::qpc, qpc::pd, pd_);
        put_in(create_qp::qpc, qpc::cqn_snd, cqn_);
        put_in(create_qp::qpc, qpc::uar_page, uar_);
        put_in(create_qp::qpc, qpc::log_sq_size, 4);
        put_in(create_qp::qpc, qpc::dbr_umem_id, umem_);
        put_in(create_qp::qpc, qpc::dbr_umem_valid, 1);
        put(create_qp::wq_umem_id, umem_);
        put(create_qp::wq_umem_valid, 1);
        return in;
      default: break;
    }
    put(modify_qp::qpn, qpn_);
    put_in(modify_qp::qpc, within(qpc::primary_address_path, ads::vhca_port_num), 1);
    put_in(modify_qp::qpc, qpc::rwe, 1);
    put_in(modify_qp::qpc, qpc::mtu, 3);
    put_in(modify_qp::qpc, qpc::log_msg_max, 30);
    put_in(modify_qp::qpc, qpc::remote_qpn, 0x123456);
    put_in(modify_qp::qpc, qpc::next_rcv_psn, 0xabcdef);
    put_in(modify_qp::qpc, qpc::next_send_psn, 0xfedcba);
    return in;
  }

  bool destroy(CommandOpcode opcode, std::uint32_t number) {
    std::vector<std::byte> in(16);
    set(in.data(), header::opcode, static_cast<std::uint64_t>(opcode));
    set(in.data(), destroy_qp::qpn, number);
    return execute(in, 16);
  }

  bool execute(const std::vector<std::byte>& in, std::size_t out_bytes) {
    const std::vector<std::byte> in_before = in;
    std::vector<std::byte> out(out_bytes + 2 * kGuardBytes, kGuard);
    std::byte* const answer = out.data() + kGuardBytes;
    const bool done = commands_.execute(in, {answer, out_bytes});

    require(in == in_before, "a command's input stays as it is");
    for (std::size_t i = 0; i < kGuardBytes; ++i) {
      require(out[i] == kGuard && answer[out_bytes + i] == kGuard,
              "an answer stays within its output");
    }
    require(done == (get(answer, header::status) == 0), "a refusal has a status");
    require(done == (get(answer, header::syndrome) == 0), "a refusal has a syndrome");
    if (!done) {
      for (std::size_t i = header::kOutBytesMin; i < out_bytes; ++i) {
        require(answer[i] == std::byte{0}, "a refusal answers nothing but status and syndrome");
      }
    }
    check_effect(in, answer, done);
    return done;
  }

  void check_effect(const std::vector<std::byte>& in, const std::byte* answer, bool done) {
    const auto opcode =
        done ? static_cast<CommandOpcode>(get(in.data(), header::opcode)) : CommandOpcode{};
    const auto number = [](const std::byte* from, Field field) {
      return static_cast<std::uint32_t>(get(from, field));
    };
    switch (opcode) {
      case CommandOpcode::kCreateCq:
        ++objects_.cqs;
        cqn_ = number(answer, create_cq::cqn);
        require(cqn_ != 0 && cqn_ < kMaxCqs && tables_->cqs[cqn_].used, "a new CQ has a number");
        break;
      case CommandOpcode::kDestroyCq: --objects_.cqs; break;
      case CommandOpcode::kCreateQp:
        ++objects_.qps;
        qpn_ = number(answer, create_qp::qpn);
        require(tables_->find_qp(Qpn(qpn_)) != nullptr, "a new QP has a number");
        check_state(qpn_, nic::QpState::kReset);
        break;
      case CommandOpcode::kDestroyQp: --objects_.qps; break;
      case CommandOpcode::kRst2InitQp:
      case CommandOpcode::kInit2InitQp:
        check_state(number(in.data(), modify_qp::qpn), nic::QpState::kInit);
        break;
      case CommandOpcode::kInit2RtrQp:
        check_state(number(in.data(), modify_qp::qpn), nic::QpState::kRtr);
        break;
      case CommandOpcode::kRtr2RtsQp:
      case CommandOpcode::kRts2RtsQp:
        check_state(number(in.data(), modify_qp::qpn), nic::QpState::kRts);
        break;
      case CommandOpcode::k2ErrQp:
        check_state(number(in.data(), modify_qp::qpn), nic::QpState::kError);
        break;
      case CommandOpcode::k2RstQp:
        check_state(number(in.data(), modify_qp::qpn), nic::QpState::kReset);
        break;
      default: break;
    }
  }

  void check_state(std::uint32_t qpn, nic::QpState state) {
    const QpEntry* qp = tables_->find_qp(Qpn(qpn));
    require(qp != nullptr && qp->state == state, "a QP is in the state that it was brought to");
  }

  // Two bytes: a number and a size.
  void registration(std::uint8_t which, Input* input) {
    const auto number = input->take<std::uint8_t>();
    const auto size = input->take<std::uint8_t>();
    const std::uint64_t bytes = std::uint64_t{size} * 256 + 1;
    switch (which % 8) {
      case 0: made(commands_.allocate_pd(), &pd_, &objects_.pds); return;
      case 1: objects_.pds -= commands_.free_pd(number) ? 1 : 0; return;
      case 2: made(commands_.allocate_uar(memory), &uar_, &objects_.uars); return;
      case 3: objects_.uars -= commands_.free_uar(number) ? 1 : 0; return;
      case 4:
        made(commands_.register_umem(memory + number, bytes - number % 2), &umem_, &objects_.umems);
        return;
      case 5: objects_.umems -= commands_.deregister_umem(number) ? 1 : 0; return;
      case 6:
        made(commands_.register_region(number, std::uint64_t{size} << 56, memory, bytes,
                                       kRemoteWrite),
             &key_, &objects_.regions);
        return;
      default:
        objects_.regions -= commands_.deregister_region(number % 2 == 0 ? key_ : number) ? 1 : 0;
        return;
    }
  }

  static void made(std::uint32_t number, std::uint32_t* last, std::uint32_t* count) {
    if (number == 0) return;
    *last = number;
    ++*count;
  }

  static bool lies_within(const void* at, std::uint64_t bytes, const UmemEntry& umem) {
    const auto* begin = static_cast<const std::byte*>(at);
    return umem.memory != nullptr && begin >= umem.memory &&
           begin + bytes <= umem.memory + umem.bytes;
  }

  bool lies_within_a_umem(const void* at, std::uint64_t bytes) const {
    return std::any_of(tables_->umems.begin(), tables_->umems.end(),
                       [&](const UmemEntry& umem) { return lies_within(at, bytes, umem); });
  }

  // Everything that is used is there.
  void check_users() const {
    std::uint32_t records = 0;
    std::map<std::uint32_t, int> recordless;  // by UAR
    for (const QpEntry& qp : tables_->qps) {
      if (qp.qpn == Qpn()) continue;
      require(tables_->pds[qp.pd], "a QP's PD stays");
      require(tables_->cqs[qp.cq].used, "a QP's CQ stays");
      require(tables_->uars[qp.uar].page != nullptr, "a QP's UAR stays");
      require(lies_within_a_umem(qp.sq, std::uint64_t{qp.depth()} * mlx5::kSlotBytes),
              "a QP's ring lies in a umem that stays");
      require(!qp.has_record() || lies_within_a_umem(qp.dbrec, sizeof *qp.dbrec),
              "a QP's doorbell record lies in a umem that stays");
      records += qp.has_record() ? 1 : 0;
      if (!qp.has_record()) {
        require(++recordless[qp.uar] == 1, "of QPs without a record each has a UAR of its own");
      }
    }
    for (const CqEntry& cq : tables_->cqs) {
      if (!cq.used) continue;
      require(tables_->uars[cq.uar].page != nullptr, "a CQ's UAR stays");
      require(lies_within_a_umem(cq.ring, std::uint64_t{mlx5::kCqeBytes} << cq.log_size),
              "a CQ's ring lies in a umem that stays");
    }
    for (const KeyEntry& key : tables_->keys) {
      if (key.key != 0) require(tables_->pds[key.pd], "a region's PD stays");
    }
    std::uint32_t users = 0;
    for (const UmemEntry& umem : tables_->umems) users += umem.users;
    require(users == objects_.qps + records + objects_.cqs,
            "each queue uses as many umems as it was made from");
  }

  std::unique_ptr<Tables> tables_ = std::make_unique<Tables>();
  CountedEvents events_;
  Commands commands_{*tables_, events_, {}};
  Commands::Objects objects_{};  // that should live
  // The last of each.
  std::uint32_t pd_ = 0;
  std::uint32_t uar_ = 0;
  std::uint32_t umem_ = 0;
  std::uint32_t key_ = 0;
  std::uint32_t cqn_ = 0;
  std::uint32_t qpn_ = 0;
};

}  // namespace
}  // namespace peal::nic

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  peal::test::Input input(data, bytes);
  static peal::nic::Device device;  // large
  device.begin();
  for (std::size_t step = 0; step < peal::nic::kMaxSteps && !input.empty(); ++step) {
    device.step(&input);
  }
  device.check();
  device.tear_down();
  return 0;
}
