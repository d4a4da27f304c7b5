// Which Peal this is, as the rows and `--version` tell.
#pragma once

namespace peal::ladder {

const char* version();
// The commit it was built from, or "unknown".
const char* commit();

}  // namespace peal::ladder
