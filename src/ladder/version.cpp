// Alone in being told the commit, so that a new one compiles nothing else again.
#include "ladder/version.hpp"

namespace peal::ladder {

const char* version() {
  return PEAL_VERSION;
}

const char* commit() {
  return PEAL_COMMIT;
}

}  // namespace peal::ladder
