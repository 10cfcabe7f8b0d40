// Images that were added to a gateway, in the folder "images" of its data folder, one folder for
// each digest; and what is checked of one before.
//
// Threads: any. Reads and writes the disk.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/node/boot_script.h"

namespace outboard::cli {

struct ImageToAdd {
  std::string folder;       // that deploy/image/build wrote
  std::string digest;       // it is to have; empty: any
  std::string signer_file;  // PEM, a certificate or a public key; empty: as before, if at all
};

struct AddedImage {
  BootImage image;
  std::string kernel;  // its release
};

// Checks it and copies it. The first signer that is given is kept ("images/signer.pem"): from then
// on each image is to be signed with that key (deploy/image/sign).
// Errors: INVALID_ARGUMENT     a file is missing, or is not the one of SHA256SUMS; the digest, the
//                              signature or the kernel does not fit: expected and found
//         FAILED_PRECONDITION  another signer is kept
//         UNAVAILABLE          it cannot be copied
absl::StatusOr<AddedImage> AddImage(const std::string& data_folder, const ImageToAdd& add);

// An image that is to be served, from any folder: also signed, where a signer is kept.
// Errors: INVALID_ARGUMENT  a file is missing, or is not the one of SHA256SUMS; the signature
absl::StatusOr<BootImage> ReadServedImage(const std::string& data_folder,
                                          const std::string& folder);
// The same of one that was added.
// Errors: NOT_FOUND         it was not added here
//         INVALID_ARGUMENT  its files were changed, or its signature is not the signer's
absl::StatusOr<BootImage> ReadStoredImage(const std::string& data_folder,
                                          const std::string& digest);

struct AddedDriver {
  BootFile file;
  std::string kernel;  // the release that it is for
};

// Drivers that deploy/image/driver wrote into `folder`, for one of `kernels`, the releases of
// images that were added: checks them and copies them to "drivers" in the data folder. Signed,
// where a signer is kept.
// Errors: INVALID_ARGUMENT     a file is missing, or is not the one of SHA256SUMS; the signature
//         FAILED_PRECONDITION  no image has this kernel: expected and found
//         UNAVAILABLE          they cannot be copied
absl::StatusOr<AddedDriver> AddDriver(const std::string& data_folder, const std::string& folder,
                                      const std::vector<std::string>& kernels);
// One that was added, by its digest ("sha256:...") and size, unread; signed, if a signer is kept.
// Errors: NOT_FOUND         none of this digest was added here
//         INVALID_ARGUMENT  its signature is not the signer's, or is another file's
absl::StatusOr<BootFile> FindStoredDriver(const std::string& data_folder,
                                          const std::string& digest);
// The same, and reads it. Errors: INVALID_ARGUMENT also: the file was changed
absl::StatusOr<BootFile> ReadStoredDriver(const std::string& data_folder,
                                          const std::string& digest);

// Where the files of one lie on which the answers above depend, whether or not they are there. The
// first is the one without which there is none. Empty: that is no digest.
std::vector<std::string> StoredImageFiles(const std::string& data_folder,
                                          const std::string& digest);
std::vector<std::string> StoredDriverFiles(const std::string& data_folder,
                                           const std::string& digest);

// The release that a kernel names itself in its header, "6.1.0-49-amd64".
// Errors: INVALID_ARGUMENT  it is no kernel of x86
absl::StatusOr<std::string> KernelRelease(const std::string& path);

}  // namespace outboard::cli
