// How a run ends: one exit status and the sentences that explain it.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace peal::ladder {

enum ExitStatus : int {
  kExitValidated = 0,
  kExitWrongPayload = 1,
  kExitUsage = 2,  // or a fault that was never reached
  kExitCompletionError = 3,
  kExitDeadline = 4,  // passed, or the peer is lost
  kExitMachine = 5,   // it lacks something
  kExitInterrupted = 130,
};

// What a peer says of its own status is input.
inline bool is_exit_status(int status) {
  return (status >= kExitValidated && status <= kExitMachine) || status == kExitInterrupted;
}

// The machine lacks something that the run needs.
class MachineError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Several things may go wrong in one run; the gravest gives the status.
class Outcome {
 public:
  // Sentences that are there already are not repeated.
  void add(int status, std::string sentence) {
    if (rank(status) > rank(status_)) status_ = status;
    for (const std::string& s : sentences_) {
      if (s == sentence) return;
    }
    if (!sentence.empty()) sentences_.push_back(std::move(sentence));
  }
  void add(const Outcome& other) {
    add(other.status_, "");
    for (const std::string& s : other.sentences_) add(other.status_, s);
    add_details(other.details_);
  }
  // Lines for whoever looks into it, told after the sentences and at this end only.
  void add_details(const std::vector<std::string>& lines) {
    details_.insert(details_.end(), lines.begin(), lines.end());
  }

  int status() const { return status_; }
  bool good() const { return status_ == kExitValidated; }
  const std::vector<std::string>& sentences() const { return sentences_; }
  const std::vector<std::string>& details() const { return details_; }

 private:
  static int rank(int status) {
    switch (status) {
      case kExitValidated: return 0;
      case kExitInterrupted: return 1;
      case kExitUsage: return 2;
      case kExitMachine: return 3;
      case kExitDeadline: return 4;
      case kExitCompletionError: return 5;
      default: return 6;
    }
  }

  int status_ = kExitValidated;
  std::vector<std::string> sentences_;
  std::vector<std::string> details_;
};

}  // namespace peal::ladder
