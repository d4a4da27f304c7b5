// What the user wrote cannot be done. The text is one sentence; the command prints it and exits 2.
#pragma once

#include <stdexcept>

namespace peal::ladder {

class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace peal::ladder
