// The answers of the boot server, before a machine runs our image: scripts for iPXE, the list of
// files, and the part of a file that a request asks for.
//
// Threads: any; pure, but for ReadBootFile.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace outboard::cli {

struct BootFile {
  std::string path;
  std::string digest;  // SHA-256, 64 hex digits
  uint64_t bytes = 0;
};
// Reads it once. Errors: INVALID_ARGUMENT  it is no file, or cannot be read
//                       CANCELLED         `stop`
absl::StatusOr<BootFile> ReadBootFile(const std::string& path, const std::stop_token& stop = {});

// The digest that `sums`, the text of a SHA256SUMS, has for `name`; "": none.
std::string ListedDigest(const std::string& sums, const std::string& name);

// One of `folder` that `sums`, the text of its SHA256SUMS, lists.
// Errors: INVALID_ARGUMENT  it is missing or not listed, or has another digest: expected and found
absl::StatusOr<BootFile> ReadListedFile(const std::string& folder, const char* name,
                                        const std::string& sums);

struct BootImage {
  BootFile kernel, initramfs;
  std::string digest;  // "sha256:..." of SHA256SUMS, which names both
};
// A folder with vmlinuz, initramfs and SHA256SUMS.
// Errors: INVALID_ARGUMENT  a file is missing, or is not the one of SHA256SUMS: expected and found
absl::StatusOr<BootImage> ReadBootImage(const std::string& folder);

// Who asks, from the query of a request for /node.ipxe.
struct BootCaller {
  std::string serial, uuid, mac;  // "" where it was not said, or makes no sense
};
BootCaller ParseBootQuery(std::string_view query);

// The first script, the same for everybody: asks for the second, with what iPXE knows of the
// machine.
std::string FirstScript();

struct ScriptOptions {
  std::string gateway;  // empty: as the image says
  std::string append;
  std::string boot_server = {};  // HOST:PORT as the machine has asked for it; empty: not known
};
// HOST:PORT of a header, port 80 where it has none; "": it is none that a command line may hold.
std::string HostOfHeader(std::string_view header);
// `claim`: empty, or of `outboard node claim --boot`. `joins_within_s`: of an image on trial; the
// machine starts again where it has not joined by then. 0: it tries for ever.
std::string NodeScript(const BootImage& image, const ScriptOptions& options,
                       const std::string& claim, int64_t joins_within_s = 0);
// Words for a kernel's command line: printable, one line, and none that only we write.
// Errors: INVALID_ARGUMENT  names `flag`
absl::Status CheckWords(const std::string& flag, const std::string& text);

// Part of a file: [begin, end).
struct ByteRange {
  uint64_t begin = 0, end = 0;
};
// Of a header "bytes=0-99", "bytes=100-" or "bytes=-100". None: what it says is no single range,
// and the whole is sent. An empty one: it lies beyond the end.
std::optional<ByteRange> ParseRange(std::string_view header, uint64_t bytes);

}  // namespace outboard::cli
