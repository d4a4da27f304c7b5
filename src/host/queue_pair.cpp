#include "peal/host/queue_pair.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "host/context_impl.hpp"
#include "host/devx.hpp"
#include "host/layout.hpp"
#include "host/log.hpp"
#include "host/path.hpp"
#include "host/registration.hpp"
#include "host/uar.hpp"
#include "peal/memory/cpu_memory.hpp"
#include "peal/mlx5/doorbell.hpp"

namespace peal {
namespace {

namespace devx = mlx5::devx;

constexpr std::uint32_t kLogMaxMessage = 30;  // 1 GiB: the most that a data segment can say
constexpr std::uint32_t kRnrRetry = 6;
constexpr std::uint32_t kMinRnrTimer = 12;      // 0.64 ms
constexpr std::uint32_t kLogReadsInFlight = 4;  // 16 reads and atomics each way

// A start PSN that an old packet of a reused QPN does not fall on.
Psn random_psn() {
  static thread_local std::mt19937 generator{std::random_device{}()};
  return Psn(static_cast<std::uint32_t>(generator()));
}

std::string qpn_text(Qpn qpn) {
  char hex[16];
  std::snprintf(hex, sizeof hex, "0x%06x", qpn.value);
  return hex;
}

}  // namespace

const char* queue_pair_state_name(QueuePairState state) {
  switch (state) {
    case QueuePairState::kReset: return "RST";
    case QueuePairState::kInit: return "INIT";
    case QueuePairState::kRtr: return "RTR";
    case QueuePairState::kRts: return "RTS";
    case QueuePairState::kError: return "ERR";
    case QueuePairState::kUnknown: break;
  }
  return "unknown";
}

struct QueuePair::Impl {
  // Device memory that is registered as a umem.
  struct Ring {
    void* memory = nullptr;
    std::size_t bytes = 0;
    bool shared = false;  // with the proxy, which writes it too
    mlx5dv_devx_umem* umem = nullptr;
  };

  explicit Impl(const Context& c) : context(c) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  // The host touches device memory by these alone: it may have no other way to reach it. Each
  // throws Error that names `what`.
  void copy_to(void* device, const void* from, std::size_t bytes, const char* what) const;
  void copy_from(void* to, const void* device, std::size_t bytes, const char* what) const;
  std::uint64_t rung() const;
  void make_counters();
  void start_counters_at(std::uint64_t index);
  void start_cq() const;
  void add_to_proxy();
  bool drained() const;
  void make_uar();
  void make_ring(Ring* ring, std::size_t bytes, const char* what);
  void make_cq();
  void make_qp();
  // By what the context's handler says; the UAR is this one if it is not null, else a new one.
  static std::unique_ptr<Impl> make(const Context& context, const QueuePairOptions& options,
                                    std::shared_ptr<host::Uar> uar);
  void modify(devx::CommandOpcode opcode, host::ModifyQp& command) const;
  std::string path_text(const QueuePairAddress& peer) const;
  void go_to_rts(const QueuePairAddress& peer) const;
  verbs::Verbs& verbs() const { return context.impl().verbs(); }
  FenceScope fence_scope() const {
    return context.is_hardware() ? FenceScope::kBus : FenceScope::kSystem;
  }
  bool proxied() const { return context.handler().resolved == NicHandler::kProxy; }
  // Null: it has no record.
  std::uint32_t* dbrec_send_word() const {
    if (!options.doorbell_record) return nullptr;
    return static_cast<std::uint32_t*>(dbrec.memory) + mlx5::kDbrecSendWord;
  }

  Context context;
  QueuePairOptions options;
  Ring sq;
  Ring cq;
  Ring dbrec;
  std::shared_ptr<host::Uar> uar;
  mlx5dv_devx_obj* cq_object = nullptr;
  mlx5dv_devx_obj* qp_object = nullptr;
  std::uint32_t cqn = 0;
  Qpn qpn;
  Psn psn;
  std::uint64_t first_index = 0;  // of the WQEs since the QP was created or reset last
  std::uint64_t cq_base = 0;
  QueueState* state = nullptr;
  std::uint64_t* marks = nullptr;
  ProxyWord* proxy_word = nullptr;  // null under direct
};

QueuePair::Impl::~Impl() {
  verbs::DeviceMemory& memory = context.impl().memory();
  if (proxy_word != nullptr) context.impl().proxy->remove(proxy_word);
  const std::string& name = context.device_name();
  if (qp_object != nullptr) host::log_kept(verbs().devx_obj_destroy(qp_object), name, "a QP");
  if (cq_object != nullptr) host::log_kept(verbs().devx_obj_destroy(cq_object), name, "a CQ");
  uar.reset();
  for (Ring* ring : {&sq, &cq, &dbrec}) {
    // What the device did not let go of it may still reach: better lost than used by somebody else.
    if (ring->umem != nullptr &&
        host::log_kept(verbs().devx_umem_dereg(ring->umem), name, "a queue's memory") != 0) {
      continue;
    }
    if (ring->memory == nullptr) continue;
    if (ring->shared) {
      memory.release_shared(ring->memory, ring->bytes);
    } else {
      memory.release(ring->memory, ring->bytes);
    }
  }
  if (marks != nullptr) memory.release(marks, options.depth * sizeof(std::uint64_t));
  if (state != nullptr) memory.release(state, sizeof(QueueState));
  if (proxy_word != nullptr) memory.release_shared(proxy_word, sizeof(ProxyWord));
}

void QueuePair::Impl::make_counters() {
  verbs::DeviceMemory& memory = context.impl().memory();
  void* counters = memory.allocate(sizeof(QueueState));
  if (counters == nullptr) throw system_error(errno, "allocating a queue's counters");
  state = static_cast<QueueState*>(counters);
  marks = static_cast<std::uint64_t*>(memory.allocate(options.depth * sizeof(std::uint64_t)));
  if (marks == nullptr) throw system_error(errno, "allocating a queue's marks");
  if (proxied()) {
    void* word = memory.allocate_shared(sizeof(ProxyWord));
    if (word == nullptr) throw system_error(errno, "allocating a queue's word for the proxy");
    proxy_word = static_cast<ProxyWord*>(word);
  }
}

void QueuePair::Impl::copy_to(void* device, const void* from, std::size_t bytes,
                              const char* what) const {
  const int error = context.impl().memory().copy_to_device(device, from, bytes);
  if (error != 0) throw system_error(error, std::string("copying a queue's ") + what);
}

void QueuePair::Impl::copy_from(void* to, const void* device, std::size_t bytes,
                                const char* what) const {
  const int error = context.impl().memory().copy_from_device(to, device, bytes);
  if (error != 0) throw system_error(error, std::string("copying a queue's ") + what);
}

std::uint64_t QueuePair::Impl::rung() const {
  std::uint64_t index = 0;
  copy_from(&index, &state->rung, sizeof index, "counters");
  return index;
}

void QueuePair::Impl::start_counters_at(std::uint64_t index) {
  first_index = index;
  QueueState start;
  start.reserved = start.ready = start.rung = start.completed = index;
  copy_to(state, &start, sizeof start, "counters");
  // No mark may lie above any counter.
  const std::vector<std::uint64_t> none(options.depth);
  copy_to(marks, none.data(), none.size() * sizeof none[0], "marks");
  const ProxyWord word{.pi = index};
  if (proxy_word != nullptr) copy_to(proxy_word, &word, sizeof word, "word for the proxy");
  if (!options.doorbell_record) return;
  const std::uint32_t record = mlx5::encode_dbrec(index);
  copy_to(dbrec_send_word(), &record, sizeof record, "record");
}

// So that each entry is seen to be not yet written.
void QueuePair::Impl::start_cq() const {
  std::vector<mlx5::Cqe> entries(options.depth);
  for (mlx5::Cqe& entry : entries) {
    entry.word[mlx5::kCqeOwnerWord] = swap_bytes(std::uint32_t{mlx5::kInitialOpOwn});
  }
  copy_to(cq.memory, entries.data(), entries.size() * mlx5::kCqeBytes, "CQ");
}

void QueuePair::Impl::add_to_proxy() {
  if (proxy_word == nullptr) return;
  context.impl().proxy->add({.word = proxy_word,
                             .dbrec = dbrec_send_word(),
                             .doorbell = uar->cpu_register(options.doorbell_record),
                             .qpn = qpn,
                             .rung = first_index,
                             .fence_scope = fence_scope()});
}

// A mapping that fails now is an error: who rings was decided when the context was opened.
void QueuePair::Impl::make_uar() {
  uar = host::Uar::allocate(context.impl());
  if (context.handler().resolved != NicHandler::kDirect) return;
  const int error = uar->map(options.doorbell_record);
  if (error != 0) throw system_error(error, "mapping the UAR register");
}

void QueuePair::Impl::make_ring(Ring* ring, std::size_t bytes, const char* what) {
  verbs::DeviceMemory& memory = context.impl().memory();
  ring->memory = ring->shared ? memory.allocate_shared(bytes) : memory.allocate(bytes);
  if (ring->memory == nullptr) {
    throw system_error(errno, "allocating " + std::to_string(bytes) + " bytes for the " + what);
  }
  ring->bytes = bytes;
  ibv_context* device = context.impl().device;
  ring->umem = host::register_memory(
      context.impl(), ring->memory, bytes, std::string("registering the umem of the ") + what,
      [&](const verbs::Dmabuf& d) {
        return verbs().devx_umem_reg_dmabuf(device, d.offset, bytes, d.fd, IBV_ACCESS_LOCAL_WRITE);
      },
      [&] { return verbs().devx_umem_reg(device, ring->memory, bytes, IBV_ACCESS_LOCAL_WRITE); });
}

void QueuePair::Impl::make_cq() {
  make_ring(&cq, std::size_t{options.depth} * mlx5::kCqeBytes, "completion queue");
  start_cq();
  std::uint32_t eqn = 0;
  if (const int error = verbs().devx_query_eqn(context.impl().device, 0, &eqn)) {
    throw system_error(error, "asking for an event queue's number");
  }

  namespace create = devx::create_cq;
  host::Command<create::kInBytes, create::kOutBytes> command(devx::CommandOpcode::kCreateCq);
  const auto in_context = [](devx::Field f) { return devx::within(create::cq_context, f); };
  command.set(in_context(devx::cqc::cqe_sz), devx::cqc::kCqeSize64Bytes);
  // Nobody writes a consumer record: the ring's credit keeps the CQ from overrunning.
  command.set(in_context(devx::cqc::oi), 1);
  command.set(in_context(devx::cqc::cc), options.completion == CompletionMode::kTail ? 1 : 0);
  command.set(in_context(devx::cqc::log_cq_size),
              static_cast<std::uint64_t>(std::countr_zero(options.depth)));
  command.set(in_context(devx::cqc::uar_page), uar->page_id());
  command.set(in_context(devx::cqc::c_eqn), eqn);
  command.set(in_context(devx::cqc::dbr_umem_valid), 1);
  command.set(in_context(devx::cqc::dbr_umem_id), dbrec.umem->umem_id);
  command.set(in_context(devx::cqc::dbr_addr), mlx5::kDbrecBytes);
  command.set(create::cq_umem_valid, 1);
  command.set(create::cq_umem_id, cq.umem->umem_id);
  command.set(create::cq_umem_offset, 0);
  cq_object = verbs().devx_obj_create(context.impl().device, command.in.data(), command.in.size(),
                                      command.out.data(), command.out.size());
  if (cq_object == nullptr) throw command.failure(errno, "CREATE_CQ");
  cqn = static_cast<std::uint32_t>(command.get(create::cqn));
}

void QueuePair::Impl::make_qp() {
  namespace create = devx::create_qp;
  host::Command<create::kInBytes, create::kOutBytes> command(devx::CommandOpcode::kCreateQp);
  const auto in_context = [](devx::Field f) { return devx::within(create::qpc, f); };
  command.set(in_context(devx::qpc::st), devx::qpc::kServiceTypeRc);
  command.set(in_context(devx::qpc::pm_state), devx::qpc::kPmStateMigrated);
  command.set(in_context(devx::qpc::pd), context.impl().pdn);
  command.set(in_context(devx::qpc::log_sq_size),
              static_cast<std::uint64_t>(std::countr_zero(options.depth)));
  command.set(in_context(devx::qpc::rq_type), devx::qpc::kRqTypeNone);
  command.set(in_context(devx::qpc::uar_page), uar->page_id());
  command.set(in_context(devx::qpc::cqn_snd), cqn);
  command.set(in_context(devx::qpc::cqn_rcv), cqn);
  command.set(in_context(devx::qpc::dbr_umem_valid), 1);
  command.set(in_context(devx::qpc::dbr_umem_id), dbrec.umem->umem_id);
  command.set(in_context(devx::qpc::dbr_addr), 0);
  // The place of a record is given either way: clients known to work give it.
  command.set(in_context(devx::qpc::send_dbr_mode), options.doorbell_record
                                                        ? devx::qpc::kSendDbrModeValid
                                                        : devx::qpc::kSendDbrModeNoDbrExt);
  command.set(create::wq_umem_valid, 1);
  command.set(create::wq_umem_id, sq.umem->umem_id);
  command.set(create::wq_umem_offset, 0);
  qp_object = verbs().devx_obj_create(context.impl().device, command.in.data(), command.in.size(),
                                      command.out.data(), command.out.size());
  if (qp_object == nullptr) throw command.failure(errno, "CREATE_QP");
  qpn = Qpn(static_cast<std::uint32_t>(command.get(create::qpn)));
}

QueuePair::QueuePair(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
QueuePair::QueuePair(QueuePair&&) noexcept = default;
QueuePair& QueuePair::operator=(QueuePair&&) noexcept = default;
QueuePair::~QueuePair() = default;

void QueuePair::check(const Context& context, const QueuePairOptions& options) {
  const std::uint32_t limit = std::min(context.max_sq_depth(), mlx5::kMaxSqDepth);
  if (!std::has_single_bit(options.depth) || options.depth > limit) {
    throw Error(EINVAL, "a queue's depth must be a power of two from 1 to " +
                            std::to_string(limit) + ", not " + std::to_string(options.depth));
  }
  if (options.ack_timeout > 31 || options.retry_count > 7) {
    throw Error(EINVAL, "a queue's ack_timeout must be at most 31 and its retry_count at most 7");
  }
  if (!options.doorbell_record && !context.offers_recordless()) {
    throw Error(ENOTSUP, context.device_name() +
                             " does not offer queue pairs without a doorbell record, which "
                             "ring_only needs: take record_ring");
  }
}

void QueuePair::check_companion(const Context& context, const QueuePairOptions& options) {
  check(context, options);
  if (options.doorbell_record) return;
  throw Error(EINVAL,
              "a queue pair without a doorbell record shares its UAR page with no companion: one "
              "ring could hide another; make each by itself");
}

std::unique_ptr<QueuePair::Impl> QueuePair::Impl::make(const Context& context,
                                                       const QueuePairOptions& options,
                                                       std::shared_ptr<host::Uar> uar) {
  check(context, options);
  auto impl = std::make_unique<Impl>(context);
  impl->options = options;
  impl->make_counters();
  impl->uar = std::move(uar);
  if (impl->uar == nullptr) impl->make_uar();
  impl->make_ring(&impl->sq, std::size_t{options.depth} * mlx5::kSlotBytes, "send queue");
  // The QP's record, then the CQ's.
  impl->dbrec.shared = impl->proxied();
  impl->make_ring(&impl->dbrec, 2 * mlx5::kDbrecBytes, "doorbell records");
  impl->start_counters_at(options.first_wqe_index);
  impl->make_cq();
  impl->make_qp();
  impl->psn = options.first_psn.value_or(random_psn());
  // The CQ counts from 0, whatever the first WQE's index is.
  impl->cq_base = 0 - options.first_wqe_index;
  impl->add_to_proxy();
  return impl;
}

QueuePair QueuePair::create(const Context& context, const QueuePairOptions& options) {
  return QueuePair(Impl::make(context, options, nullptr));
}

QueuePair QueuePair::create_companion(const QueuePair& main, const QueuePairOptions& options) {
  if (!main.valid()) throw Error(EINVAL, "a companion's main queue pair has been moved from");
  check_companion(main.context(), main.impl_->options);
  check_companion(main.context(), options);
  return QueuePair(Impl::make(main.context(), options, main.impl_->uar));
}

const Context& QueuePair::context() const {
  return impl_->context;
}
HandlerChoice QueuePair::handler() const {
  return impl_->context.handler();
}

QueuePairAddress QueuePair::address() const {
  QueuePairAddress address{impl_->qpn, impl_->psn, impl_->context.lid(),
                           impl_->context.mtu_bytes()};
  if (const auto port = impl_->context.gid()) address.gid = port->gid;
  address.pkey = impl_->context.pkey().key;
  return address;
}

void QueuePair::Impl::modify(devx::CommandOpcode opcode, host::ModifyQp& command) const {
  command.set(devx::modify_qp::qpn, qpn.value);
  if (const int error = verbs().devx_obj_modify(qp_object, command.in.data(), command.in.size(),
                                                command.out.data(), command.out.size())) {
    throw command.failure(
        error, std::string(devx::command_name(static_cast<std::uint16_t>(opcode))) + " of QP " +
                   qpn_text(qpn));
  }
  host::log(LogLevel::kDebug, context.device_name(), ", QP 0x", std::hex, qpn.value, ": ",
            devx::command_name(static_cast<std::uint16_t>(opcode)));
}

// With all that a refusal may be about.
std::string QueuePair::Impl::path_text(const QueuePairAddress& peer) const {
  const Context::Impl& from = context.impl();
  std::string text = "connecting from port " + std::to_string(from.port) + " of " + from.name;
  if (from.gid) {
    text += " by GID index " + std::to_string(from.gid->index) + " (" +
            gid_type_name(from.gid->gid.type) + ")";
  }
  text += " to QPN " + qpn_text(peer.qpn);
  text += peer.gid ? " at " + gid_text(*peer.gid) : " at LID " + std::to_string(peer.lid);
  return text + " with MTU " + std::to_string(std::min(from.mtu_bytes, peer.mtu_bytes));
}

void QueuePair::connect(const QueuePairAddress& peer) {
  try {
    impl_->go_to_rts(peer);
  } catch (const Error& e) {
    throw e.in(impl_->path_text(peer));
  }
}

void QueuePair::Impl::go_to_rts(const QueuePairAddress& peer) const {
  const auto in_context = [](devx::Field f) { return devx::within(devx::modify_qp::qpc, f); };
  const auto in_path = [&in_context](devx::Field f) {
    return in_context(devx::within(devx::qpc::primary_address_path, f));
  };

  if (peer.pkey) host::require_same_partition(context.pkey(), *peer.pkey);
  host::ModifyQp init(devx::CommandOpcode::kRst2InitQp);
  init.set(in_context(devx::qpc::pm_state), devx::qpc::kPmStateMigrated);
  init.set(in_context(devx::qpc::rwe), 1);
  init.set(in_context(devx::qpc::rre), 1);
  init.set(in_context(devx::qpc::rae), 1);
  init.set(in_context(devx::qpc::atomic_mode), devx::qpc::kAtomicModeUpTo8Bytes);
  init.set(in_path(devx::ads::vhca_port_num), context.impl().port);
  init.set(in_path(devx::ads::pkey_index), context.pkey().index);
  modify(devx::CommandOpcode::kRst2InitQp, init);

  const std::uint32_t mtu = std::min(context.mtu_bytes(), peer.mtu_bytes);
  host::ModifyQp rtr(devx::CommandOpcode::kInit2RtrQp);
  rtr.set(in_context(devx::qpc::mtu),
          mtu < 256 ? 0 : static_cast<std::uint64_t>(std::countr_zero(mtu)) - 7);
  rtr.set(in_context(devx::qpc::log_msg_max), kLogMaxMessage);
  rtr.set(in_context(devx::qpc::remote_qpn), peer.qpn.value);
  rtr.set(in_context(devx::qpc::next_rcv_psn), peer.psn.value);
  rtr.set(in_context(devx::qpc::log_rra_max), kLogReadsInFlight);
  rtr.set(in_context(devx::qpc::min_rnr_nak), kMinRnrTimer);
  host::set_path(context.impl(), options, qpn, peer, rtr);
  modify(devx::CommandOpcode::kInit2RtrQp, rtr);

  host::ModifyQp rts(devx::CommandOpcode::kRtr2RtsQp);
  rts.set(in_context(devx::qpc::next_send_psn), psn.value);
  rts.set(in_context(devx::qpc::retry_count), options.retry_count);
  rts.set(in_context(devx::qpc::rnr_retry), kRnrRetry);
  rts.set(in_context(devx::qpc::log_sra_max), kLogReadsInFlight);
  rts.set(in_path(devx::ads::ack_timeout), options.ack_timeout);
  modify(devx::CommandOpcode::kRtr2RtsQp, rts);
}

void QueuePair::to_error() {
  host::ModifyQp command(devx::CommandOpcode::k2ErrQp);
  impl_->modify(devx::CommandOpcode::k2ErrQp, command);
}

// Whether the CQE of the last WQE that was rung has been written, after which no other follows.
bool QueuePair::Impl::drained() const {
  const std::uint64_t end = rung();
  if (end == first_index) return true;  // nothing was posted
  const std::uint64_t number = end - 1 + cq_base;
  const bool tail = options.completion == CompletionMode::kTail;
  const auto* entries = static_cast<const mlx5::Cqe*>(cq.memory);
  const mlx5::Cqe& entry = entries[tail ? 0 : number & (options.depth - 1)];
  std::uint32_t owner_word = 0;
  copy_from(&owner_word, &entry.word[mlx5::kCqeOwnerWord], sizeof owner_word, "CQ");
  const mlx5::CqeOwnerWord seen = mlx5::decode_cqe_owner_word(owner_word);
  return seen.opcode != mlx5::CqeOpcode::kInvalid &&
         seen.wqe_counter == static_cast<std::uint16_t>(end - 1) &&
         (tail || seen.owner == mlx5::cqe_owner(number, options.depth));
}

bool QueuePair::flushed() const {
  return impl_->drained();
}

void QueuePair::reset(std::uint64_t timeout_ns) {
  to_error();
  Wait<CpuMemory> wait(timeout_ns);
  while (!flushed()) {
    if (wait.turn_until_deadline()) {
      throw Error(ETIMEDOUT, "resetting a QP: the device has not flushed what was posted");
    }
  }
  if (impl_->proxy_word != nullptr) impl_->context.impl().proxy->remove(impl_->proxy_word);
  host::ModifyQp command(devx::CommandOpcode::k2RstQp);
  impl_->modify(devx::CommandOpcode::k2RstQp, command);
  // The CQ goes on counting: the CQE of the next WQE, whose index is 0, is the next of all.
  impl_->cq_base += impl_->rung();
  if (impl_->options.completion == CompletionMode::kTail) impl_->start_cq();
  impl_->start_counters_at(0);
  impl_->psn = random_psn();
  impl_->add_to_proxy();
}

QueuePairState QueuePair::state() const {
  namespace query = devx::query_qp;
  host::Command<query::kInBytes, query::kOutBytes> command(devx::CommandOpcode::kQueryQp);
  command.set(query::qpn, impl_->qpn.value);
  if (const int error =
          impl_->verbs().devx_obj_query(impl_->qp_object, command.in.data(), command.in.size(),
                                        command.out.data(), command.out.size())) {
    throw command.failure(error, "QUERY_QP");
  }
  switch (static_cast<devx::QpState>(command.get(devx::within(query::qpc, devx::qpc::state)))) {
    case devx::QpState::kRst: return QueuePairState::kReset;
    case devx::QpState::kInit: return QueuePairState::kInit;
    case devx::QpState::kRtr: return QueuePairState::kRtr;
    case devx::QpState::kRts: return QueuePairState::kRts;
    case devx::QpState::kErr: return QueuePairState::kError;
    default: return QueuePairState::kUnknown;
  }
}

QueueState QueuePair::counters() const {
  QueueState copy;
  impl_->copy_from(&copy, impl_->state, sizeof copy, "counters");
  return copy;
}

std::uint64_t QueuePair::doorbells() const {
  const std::uint64_t own = counters().doorbells;
  if (impl_->proxy_word == nullptr) return own;
  return own + CpuMemory::load_relaxed(&impl_->proxy_word->doorbells);
}

QueueHandle QueuePair::handle(std::uint32_t layout) const {
  host::require_layout(layout);
  QueueHandle h;
  h.sq = static_cast<mlx5::Slot*>(impl_->sq.memory);
  h.dbrec = impl_->dbrec_send_word();
  h.doorbell = impl_->uar->mapped();
  h.nic_cq = static_cast<const mlx5::Cqe*>(impl_->cq.memory);
  h.state = impl_->state;
  h.marks = impl_->marks;
  h.proxy = impl_->proxy_word;
  h.completion = impl_->options.completion;
  h.cq_base = impl_->cq_base;
  h.max_message_bytes = std::uint64_t{1} << kLogMaxMessage;
  h.depth = h.cq_depth = impl_->options.depth;
  h.qpn = impl_->qpn;
  h.has_record = impl_->options.doorbell_record;
  h.fence_scope = impl_->fence_scope();
  h.handler = handler();
  return h;
}

}  // namespace peal
