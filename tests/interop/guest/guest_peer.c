// The Linux end of the interop tests: one RC queue pair on rxe0, told what to do line by line on
// standard input. Each line is answered by any number of lines, the last of which begins with "ok"
// or "failed". What a test's other end may break (a QP in error, no answer) is an answer; what it
// cannot ends the program.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

enum { kMemoryBytes = 2 << 20, kMostWords = 12, kDeadlineSeconds = 60, kGidIndex = 1 };

static struct ibv_context* context;
static struct ibv_pd* pd;
static struct ibv_cq* cq;
static struct ibv_mr* mr;
static struct ibv_qp* qp;
static unsigned char* memory;
static unsigned first_psn;

static void end_unless(int holds, const char* what) {
  if (holds) return;
  printf("failed: the guest cannot %s\n", what);
  exit(1);
}

static double now_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t number(const char* text) {
  return strtoull(text, NULL, 0);
}

// ---- Memory -------------------------------------------------------------------------------------

static int inside(uint64_t offset, uint64_t bytes) {
  return offset <= kMemoryBytes && bytes <= kMemoryBytes - offset;
}

static void fill(uint64_t offset, uint64_t bytes, uint32_t seed) {
  for (uint64_t i = 0; i != bytes; ++i) {
    seed = seed * 1664525u + 1013904223u;
    memory[offset + i] = (unsigned char)(seed >> 24);
  }
}

static uint32_t crc(uint64_t offset, uint64_t bytes) {
  static uint32_t table[256];
  if (table[1] == 0) {
    for (uint32_t i = 0; i != 256; ++i) {
      table[i] = i;
      for (int bit = 0; bit != 8; ++bit) {
        table[i] = (table[i] >> 1) ^ (table[i] & 1 ? 0xedb88320u : 0);
      }
    }
  }
  uint32_t sum = ~0u;
  for (uint64_t i = 0; i != bytes; ++i) {
    sum = (sum >> 8) ^ table[(sum ^ memory[offset + i]) & 0xff];
  }
  return ~sum;
}

// ---- Queue pair ---------------------------------------------------------------------------------

static void open_device(void) {
  int devices = 0;
  struct ibv_device** list = ibv_get_device_list(&devices);
  end_unless(list != NULL && devices == 1, "find rxe0");
  context = ibv_open_device(list[0]);
  end_unless(context != NULL, "open rxe0");
  pd = ibv_alloc_pd(context);
  end_unless(pd != NULL, "allocate a protection domain");
  end_unless(posix_memalign((void**)&memory, 4096, kMemoryBytes) == 0, "allocate memory");
  memset(memory, 0, kMemoryBytes);
  mr = ibv_reg_mr(pd, memory, kMemoryBytes,
                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                      IBV_ACCESS_REMOTE_ATOMIC);
  end_unless(mr != NULL, "register memory");
}

// open PSN: a new queue pair in place of the last, whose first packet will have this PSN.
static void open_qp(char** word) {
  if (qp != NULL) end_unless(ibv_destroy_qp(qp) == 0, "destroy a QP");
  if (cq != NULL) end_unless(ibv_destroy_cq(cq) == 0, "destroy a CQ");
  cq = ibv_create_cq(context, 1024, NULL, NULL, 0);
  end_unless(cq != NULL, "create a CQ");
  struct ibv_qp_init_attr made = {
      .send_cq = cq,
      .recv_cq = cq,
      .qp_type = IBV_QPT_RC,
      .cap = {.max_send_wr = 512, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1}};
  qp = ibv_create_qp(pd, &made);
  end_unless(qp != NULL, "create a QP");
  struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT,
                             .port_num = 1,
                             .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                                IBV_ACCESS_REMOTE_ATOMIC};
  end_unless(
      ibv_modify_qp(qp, &init,
                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
      "bring a QP to INIT");
  first_psn = (unsigned)number(word[1]);
  union ibv_gid gid;
  char text[INET6_ADDRSTRLEN];
  end_unless(ibv_query_gid(context, 1, kGidIndex, &gid) == 0, "read its GID");
  inet_ntop(AF_INET6, &gid, text, sizeof text);
  printf("ok qpn=%u psn=%u rkey=%u address=%lu bytes=%d gid=%s\n", qp->qp_num, first_psn, mr->rkey,
         (unsigned long)memory, kMemoryBytes, text);
}

// connect QPN PSN GID MTU_BYTES TIMEOUT RETRY_COUNT RNR_RETRY RNR_TIMER
static void connect_qp(char** word) {
  struct ibv_qp_attr rtr = {
      .qp_state = IBV_QPS_RTR,
      .dest_qp_num = (uint32_t)number(word[1]),
      .rq_psn = (uint32_t)number(word[2]),
      .max_dest_rd_atomic = 16,
      .min_rnr_timer = (uint8_t)number(word[8]),
      .ah_attr = {
          .is_global = 1, .port_num = 1, .grh = {.sgid_index = kGidIndex, .hop_limit = 64}}};
  if (inet_pton(AF_INET6, word[3], &rtr.ah_attr.grh.dgid) != 1) {
    printf("failed: %s is no GID\n", word[3]);
    return;
  }
  rtr.path_mtu = IBV_MTU_256;
  while (128u << rtr.path_mtu < number(word[4])) ++rtr.path_mtu;
  if (ibv_modify_qp(qp, &rtr,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0) {
    puts("failed: it does not go to RTR");
    return;
  }
  struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
                            .timeout = (uint8_t)number(word[5]),
                            .retry_cnt = (uint8_t)number(word[6]),
                            .rnr_retry = (uint8_t)number(word[7]),
                            .sq_psn = first_psn,
                            .max_rd_atomic = 16};
  if (ibv_modify_qp(qp, &rts,
                    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) != 0) {
    puts("failed: it does not go to RTS");
    return;
  }
  puts("ok");
}

static void state(void) {
  struct ibv_qp_attr attributes;
  struct ibv_qp_init_attr made;
  end_unless(ibv_query_qp(qp, &attributes, IBV_QP_STATE, &made) == 0, "ask for a QP's state");
  static const char* const name[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  printf("ok state=%s\n", attributes.qp_state <= 6 ? name[attributes.qp_state] : "unknown");
}

// The next completion, which is of a send or of a receive.
static int completion(struct ibv_wc* wc) {
  const double begin = now_seconds();
  for (;;) {
    const int found = ibv_poll_cq(cq, 1, wc);
    end_unless(found >= 0, "poll a CQ");
    if (found == 1) return 1;
    if (now_seconds() - begin > kDeadlineSeconds) return 0;
  }
}

static void tell_completion(const struct ibv_wc* wc, double seconds) {
  printf("%s status=%d bytes=%u immediate=%u seconds=%.4f %s\n", wc->status == 0 ? "ok" : "failed",
         wc->status, wc->byte_len, (wc->wc_flags & IBV_WC_WITH_IMM) != 0 ? ntohl(wc->imm_data) : 0,
         seconds, ibv_wc_status_str(wc->status));
}

// OPCODE LOCAL_OFFSET BYTES ADDRESS RKEY [COUNT [VALUE [COMPARE]]]: COUNT of them at once, each
// behind the last in both memories. VALUE: of an immediate, to add, to swap.
static void operate(enum ibv_wr_opcode opcode, char** word, int words) {
  const uint64_t offset = number(word[1]), bytes = number(word[2]), address = number(word[3]);
  const uint64_t count = words > 5 ? number(word[5]) : 1, value = words > 6 ? number(word[6]) : 0;
  if (count == 0 || count > 512 || !inside(offset, bytes) || !inside(offset, count * bytes)) {
    puts("failed: that is more than it has");
    return;
  }
  const int atomic = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
  const double begin = now_seconds();
  for (uint64_t i = 0; i != count; ++i) {
    struct ibv_sge sge = {(uintptr_t)memory + offset + i * bytes, (uint32_t)bytes, mr->lkey};
    struct ibv_send_wr wr = {.wr_id = i,
                             .sg_list = &sge,
                             .num_sge = bytes == 0 ? 0 : 1,
                             .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad = NULL;
    if (atomic) {
      wr.wr.atomic.remote_addr = address;
      wr.wr.atomic.rkey = (uint32_t)number(word[4]);
      wr.wr.atomic.compare_add = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? value : number(word[7]);
      wr.wr.atomic.swap = value;
    } else {
      wr.wr.rdma.remote_addr = address + i * bytes;
      wr.wr.rdma.rkey = (uint32_t)number(word[4]);
      wr.imm_data = htonl((uint32_t)value);
    }
    const int error = ibv_post_send(qp, &wr, &bad);
    if (error != 0) {
      printf("failed: it does not take a request: %s\n", strerror(error));
      return;
    }
  }
  struct ibv_wc wc;
  for (uint64_t i = 0; i != count; ++i) {
    if (!completion(&wc)) {
      printf("failed: no completion in %d seconds\n", kDeadlineSeconds);
      return;
    }
    if (wc.status != 0) break;
  }
  tell_completion(&wc, now_seconds() - begin);
}

// receive OFFSET BYTES
static void post_receive(char** word) {
  struct ibv_sge sge = {(uintptr_t)memory + number(word[1]), (uint32_t)number(word[2]), mr->lkey};
  struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad = NULL;
  puts(ibv_post_recv(qp, &wr, &bad) == 0 ? "ok" : "failed: it does not take a receive");
}

static void wait_for_receive(void) {
  struct ibv_wc wc;
  const double begin = now_seconds();
  if (completion(&wc)) {
    tell_completion(&wc, now_seconds() - begin);
  } else {
    printf("failed: no completion in %d seconds\n", kDeadlineSeconds);
  }
}

// ---- The machine --------------------------------------------------------------------------------

// raw HEX: sends an IPv4 packet as it is; only its header's checksum is made by the kernel.
static void send_raw(const char* hex) {
  unsigned char packet[2048];
  size_t bytes = 0;
  for (; bytes != sizeof packet && sscanf(hex + 2 * bytes, "%2hhx", &packet[bytes]) == 1; ++bytes) {
  }
  struct sockaddr_in to = {.sin_family = AF_INET};
  if (bytes < 20) {
    puts("failed: that is no packet");
    return;
  }
  memcpy(&to.sin_addr, packet + 16, 4);
  const int raw = socket(AF_INET, SOCK_RAW, IPPROTO_RAW);
  end_unless(raw >= 0, "open a raw socket");
  const ssize_t sent = sendto(raw, packet, bytes, 0, (struct sockaddr*)&to, sizeof to);
  close(raw);
  puts(sent == (ssize_t)bytes ? "ok" : "failed: the packet was not sent");
}

static void shell(const char* line) {
  const int status = system(line);
  printf("%s status=%d\n", status == 0 ? "ok" : "failed", status);
}

// -------------------------------------------------------------------------------------------------

static void answer(char* line) {
  static const struct {
    const char* name;
    int words;  // at least
    enum ibv_wr_opcode opcode;
  } operations[] = {{"write", 5, IBV_WR_RDMA_WRITE},
                    {"write_immediate", 7, IBV_WR_RDMA_WRITE_WITH_IMM},
                    {"read", 5, IBV_WR_RDMA_READ},
                    {"fetch_add", 7, IBV_WR_ATOMIC_FETCH_AND_ADD},
                    {"compare_swap", 8, IBV_WR_ATOMIC_CMP_AND_SWP}};
  if (strncmp(line, "sh ", 3) == 0) return shell(line + 3);
  char* word[kMostWords] = {0};
  int words = 0;
  for (char* w = strtok(line, " "); w != NULL && words != kMostWords; w = strtok(NULL, " ")) {
    word[words++] = w;
  }
  const char* name = words == 0 ? "" : word[0];
  if (strcmp(name, "open") == 0 && words == 2) return open_qp(word);
  if (strcmp(name, "raw") == 0 && words == 2) return send_raw(word[1]);
  if (strcmp(name, "fill") == 0 && words == 4 && inside(number(word[1]), number(word[2]))) {
    fill(number(word[1]), number(word[2]), (uint32_t)number(word[3]));
    printf("ok crc=%u\n", crc(number(word[1]), number(word[2])));
    return;
  }
  if (strcmp(name, "crc") == 0 && words == 3 && inside(number(word[1]), number(word[2]))) {
    printf("ok crc=%u\n", crc(number(word[1]), number(word[2])));
    return;
  }
  if (strcmp(name, "word") == 0 && words == 2 && inside(number(word[1]), 8)) {
    uint64_t value;
    memcpy(&value, memory + number(word[1]), 8);
    printf("ok word=%lu\n", (unsigned long)value);
    return;
  }
  if (qp != NULL) {
    if (strcmp(name, "connect") == 0 && words == 9) return connect_qp(word);
    if (strcmp(name, "state") == 0 && words == 1) return state();
    if (strcmp(name, "receive") == 0 && words == 3 && inside(number(word[1]), number(word[2]))) {
      return post_receive(word);
    }
    if (strcmp(name, "received") == 0 && words == 1) return wait_for_receive();
    for (size_t i = 0; i != sizeof operations / sizeof operations[0]; ++i) {
      if (strcmp(name, operations[i].name) == 0 && words >= operations[i].words) {
        return operate(operations[i].opcode, word, words);
      }
    }
  }
  puts("failed: it does not know that");
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  open_device();
  struct utsname system_name;
  end_unless(uname(&system_name) == 0, "name its kernel");
  printf("ok kernel=%s\n", system_name.release);
  char line[8192];
  while (fgets(line, sizeof line, stdin) != NULL) {
    line[strcspn(line, "\r\n")] = '\0';
    answer(line);
  }
  return 0;
}
