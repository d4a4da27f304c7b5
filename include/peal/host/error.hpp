// The one exception type of the control path.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <system_error>

namespace peal {

// What failed, why, and in the course of what. what() is one sentence, outermost context first.
class Error : public std::runtime_error {
 public:
  // A refused operating-system or verbs call: `code` is an errno value.
  Error(int code, const std::string& operation) : std::runtime_error(operation), code_(code) {}

  // A refused DevX command: code EREMOTEIO, with the command's status and syndrome.
  Error(int code, const std::string& operation, std::uint8_t status, std::uint32_t syndrome)
      : std::runtime_error(operation), code_(code), status_(status), syndrome_(syndrome) {}

  int code() const { return code_; }
  std::uint8_t command_status() const { return status_; }
  std::uint32_t command_syndrome() const { return syndrome_; }

  // The same error, seen from one level further out.
  Error in(const std::string& context) const {
    return Error(code_, context + ": " + what(), status_, syndrome_);
  }

 private:
  int code_;
  std::uint8_t status_ = 0;
  std::uint32_t syndrome_ = 0;
};

// An Error from errno, with the system's text.
inline Error system_error(int code, const std::string& operation) {
  return Error(code, operation + ": " + std::generic_category().message(code));
}

}  // namespace peal
