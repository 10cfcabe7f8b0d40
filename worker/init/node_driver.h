// Drivers of a vendor's for a machine that booted over the network: a squashfs file that
// deploy/image/driver made, fetched after the machine has enrolled, and mounted read-only.
//
//   kernel-release   the release of the kernel that it is for
//   modules/         kernel modules; modules/load names them in the order in which they are loaded
//   lib/             shared libraries: the worker starts again with them on its path
//   firmware/        what the modules ask for (optional)
//
// Threads: one. Reads and writes the disk; as root, on the machine itself.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/fleet.pb.h"

namespace outboard::worker {

// In the node's folder: the file, and where it is mounted.
inline constexpr char kDriverFile[] = "driver.squashfs", kDriverFolder[] = "driver",
                      kDriverLoaded[] = "driver-loaded";  // its modules are, too

// Whether a driver is for this kernel. `mounted`: a folder as above.
// Errors: FAILED_PRECONDITION  it is for another: expected and found
absl::Status CheckDriverKernel(const std::string& of_driver, const std::string& of_machine);

// Paths of the modules in `mounted`, in their order. Bounded: whoever made the file is trusted with
// the machine, and not to have made it well.
// Errors: INVALID_ARGUMENT  a name that leaves the folder, or too many
absl::StatusOr<std::vector<std::string>> ModulesOf(const std::string& mounted);

// Fetches `driver` from `boot_server`, checks it and mounts it in `node_folder`; loads its modules.
// `stop` ends the fetch.
// Errors: those of FetchByDigest and CheckDriverKernel
//         UNAVAILABLE  it cannot be mounted, or a module is not loaded
//         UNIMPLEMENTED  this build fetches none (OUTBOARD_VIZ)
absl::Status UseDriver(const proto::NodeDriver& driver, const std::string& boot_server,
                       const std::string& kernel, const std::string& node_folder,
                       std::stop_token stop = {});

// The folder of shared libraries of a driver that is mounted and loaded; "": none is.
std::string DriverLibraries(const std::string& node_folder);
// Whether NVIDIA's library is among them; for other vendors' GPUs this program has no runtime.
bool HasCuda(const std::string& libraries);

// Loads a kernel module; OK also where it is there already.
absl::Status LoadModule(const std::string& path);

}  // namespace outboard::worker
