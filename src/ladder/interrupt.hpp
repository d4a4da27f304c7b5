// Ctrl-C as a descriptor that becomes readable.
#pragma once

namespace peal::ladder {

// From its construction on, the first SIGINT or SIGTERM makes fd() readable, and the second one
// ends the process as if there were no handler. One at a time; restored by the destructor.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  int fd() const;
  bool raised() const;
};

}  // namespace peal::ladder
