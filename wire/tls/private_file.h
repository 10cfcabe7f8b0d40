// Files that hold a key: read and written so that their owner alone can read them, and replaced at
// once, so that no reader finds half of one.
// Threads: any.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "wire/tls/limits.h"

namespace outboard::tls {

// What becomes of a file that is there already: it stays, and that is an error, or it is replaced.
enum class Replace { kNo, kYes };

// Writes `text` under another name, with mode 0600 (`is_secret`) or 0644, and moves it to `path`.
// Errors: ALREADY_EXISTS  with Replace::kNo; UNAVAILABLE  it cannot be written
absl::Status WriteFile(const std::string& path, std::string_view text, bool is_secret,
                       Replace replace);

// True if users other than the owner may read a file with this mode. Not so in the folder that
// systemd makes for LoadCredential=, where the mode shows the one user who may read it.
bool IsOpenToOthers(const std::string& path, mode_t mode);

// Errors: NOT_FOUND            no such file
//         PERMISSION_DENIED    this user may not read it
//         FAILED_PRECONDITION  `is_secret`, and others may read it; or it is no file
//         UNAVAILABLE          the disk, or no descriptor is left
//         INVALID_ARGUMENT     longer than `bytes_max`
absl::StatusOr<std::string> ReadFile(const std::string& path, bool is_secret,
                                     size_t bytes_max = kPemBytesMax);

// Makes a folder that its owner alone may read, where there is none.
absl::Status EnsurePrivateFolder(const std::string& path);

}  // namespace outboard::tls
