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

#include <array>
#include <cstdint>
#include <functional>
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

// Kernel modules by which a squashfs file is mounted.
inline constexpr std::array<const char*, 2> kImageFileModules = {"loop", "squashfs"};

// Whether a driver is for this kernel. `mounted`: a folder as above.
// Errors: FAILED_PRECONDITION  it is for another: expected and found
absl::Status CheckDriverKernel(const std::string& of_driver, const std::string& of_machine);

// Paths of the modules in `mounted`, in their order. Bounded: whoever made the file is trusted with
// the machine, and not to have made it well.
// Errors: INVALID_ARGUMENT  a name that leaves the folder, or too many
absl::StatusOr<std::vector<std::string>> ModulesOf(const std::string& mounted);

// Whether this machine can have the driver, as far as is known before it is fetched.
// Errors: FAILED_PRECONDITION  it is for another kernel
//         INVALID_ARGUMENT     no `boot_server` says where it is
//         RESOURCE_EXHAUSTED   its file would have more than half of this machine's memory
absl::Status CheckDriver(const proto::NodeDriver& driver, const std::string& boot_server,
                         const std::string& kernel);

// Fetches `driver` from `boot_server`, checks it and mounts it in `node_folder`; loads its modules.
// `stop` ends the fetch, which otherwise goes on for ever while the server's answer is "not now";
// `on_pause` is told why before each pause.
// Errors: those of CheckDriver, FetchByDigest and CheckDriverKernel
//         UNAVAILABLE  it cannot be mounted, or a module is not loaded
//         UNIMPLEMENTED  this build fetches none (OUTBOARD_VIZ)
absl::Status UseDriver(const proto::NodeDriver& driver, const std::string& boot_server,
                       const std::string& kernel, const std::string& node_folder,
                       std::stop_token stop,
                       std::function<void(const absl::Status& why)> on_pause);

// What the file of a driver takes of the memory that sessions would have: it is kept in memory.
// `named`: the one that is to be fetched, if any, which CheckDriver has found good.
uint64_t DriverMemoryBytes(const std::string& node_folder, const proto::NodeDriver* named);

// The folder of shared libraries of a driver that is mounted and loaded; "": none is.
std::string DriverLibraries(const std::string& node_folder);
// Whether NVIDIA's library is among them; for other vendors' GPUs this program has no runtime.
bool HasCuda(const std::string& libraries);

// Mounts a squashfs file read-only, by the modules of the image's kernel.
// Errors: UNAVAILABLE
absl::Status MountSquashfs(const std::string& file, const std::string& folder,
                           const std::string& kernel);

// Loads a kernel module; OK also where it is there already.
absl::Status LoadModule(const std::string& path);

}  // namespace outboard::worker
