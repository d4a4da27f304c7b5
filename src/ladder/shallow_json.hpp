// JSON from elsewhere: a message of a peer, a line of a file. What Peal writes is never deep, and
// the library copies and frees a deep value by recursion.
#pragma once

#include <string_view>

namespace peal::ladder {

inline constexpr int kMaxJsonDepth = 16;

// The value in `text`; a discarded one where that is no JSON, or nested more deeply than anything
// that Peal writes.
template <class Json>
Json parse_shallow_json(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) return Json(Json::value_t::discarded);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return Json::parse(text, nullptr, false);
}

}  // namespace peal::ladder
