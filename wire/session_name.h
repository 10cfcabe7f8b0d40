// Names of sessions, which their programs choose. Both sides check them: a client before it
// connects, a gateway before it keeps one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "wire/limits.h"

namespace outboard::wire {

// A session's id in hex, as `outboard ps` prints it.
inline bool IsSessionIdText(std::string_view text) {
  return text.size() == 2 * kSessionIdBytes && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// Letters, digits and "._-", none of which a shell or a terminal obeys; and no id, so that where
// one may stand the other is not meant.
inline bool IsSessionName(std::string_view text) {
  return !text.empty() && text.size() <= kSessionNameBytesMax && !IsSessionIdText(text) &&
         text.front() != '-' && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '.' || c == '_' || c == '-';
         });
}

inline constexpr char kSessionNameRule[] =
    "letters, digits and \"._-\", at most 64, not beginning with \"-\", and no session's id";
static_assert(kSessionNameBytesMax == 64);

}  // namespace outboard::wire
