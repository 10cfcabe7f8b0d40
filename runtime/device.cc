#include "runtime/device.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace outboard::runtime {
namespace {

// Of a file that is copied to a device: large enough that the calls cost nothing.
constexpr int64_t kFilePieceBytes = 1 << 20;

constexpr char kLaunchPayload[] = "outboard/launch";  // its index, in decimal
constexpr char kMemoryFaultPayload[] = "outboard/memory-fault";

}  // namespace

absl::Status AtLaunch(absl::Status status, size_t index) {
  status.SetPayload(kLaunchPayload, absl::Cord(absl::string_view(absl::StrCat(index))));
  return status;
}

std::optional<size_t> LaunchOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kLaunchPayload);
  uint64_t index = 0;
  if (!payload || !absl::SimpleAtoi(std::string(*payload), &index)) return std::nullopt;
  return index;
}

absl::Status AsMemoryFault(absl::Status status) {
  status.SetPayload(kMemoryFaultPayload, absl::Cord());
  return status;
}

bool IsMemoryFault(const absl::Status& status) {
  return status.GetPayload(kMemoryFaultPayload).has_value();
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : device_(std::exchange(other.device_, nullptr)),
      address_(other.address_),
      bytes_(other.bytes_),
      mapped_(other.mapped_) {}

DeviceBuffer::~DeviceBuffer() {
  if (device_ != nullptr) device_->Free(address_, bytes_, mapped_);
}

std::vector<LoadedKernel> Device::LoadAll(std::span<const CompiledKernel> kernels) {
  std::vector<LoadedKernel> loaded;
  for (const CompiledKernel& kernel : kernels) loaded.push_back(Load(kernel));
  return loaded;
}

absl::Status Device::LaunchAll(std::span<const KernelLaunch> launches,
                               std::span<const int64_t> vars, std::unique_ptr<LaunchRecord>&) {
  for (size_t i = 0; i < launches.size(); ++i)
    if (absl::Status status = Launch(*launches[i].kernel, launches[i].buffers, vars); !status.ok())
      return AtLaunch(std::move(status), i);
  return absl::OkStatus();
}

absl::StatusOr<DeviceBuffer> Device::MapFile(int fd, int64_t bytes) {
  absl::StatusOr<DeviceBuffer> buffer = Allocate(bytes);
  if (!buffer.ok() || bytes == 0) return buffer;
  const absl::Status failure =
      absl::DataLossError(absl::StrCat("the file of ", bytes, " bytes cannot be read"));
  std::string piece(static_cast<size_t>(std::min(bytes, kFilePieceBytes)), '\0');
  absl::Status status;
  for (int64_t offset = 0; status.ok() && offset < bytes;) {
    const ssize_t n = pread(
        fd, piece.data(),
        static_cast<size_t>(std::min(bytes - offset, static_cast<int64_t>(piece.size()))), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      status = failure;
      break;
    }
    status = Upload(buffer->address() + offset, {piece.data(), static_cast<size_t>(n)});
    offset += n;
  }
  if (!status.ok()) return status;
  return buffer;
}

absl::Status Device::Download(DeviceAddress from, int64_t bytes, int64_t piece_bytes, Sink sink) {
  std::string piece(static_cast<size_t>(std::min(bytes, piece_bytes)), '\0');
  for (int64_t offset = 0; offset < bytes; offset += piece_bytes) {
    const int64_t n = std::min(bytes - offset, piece_bytes);
    absl::Status status = Download(from + offset, n, piece.data());
    if (status.ok()) status = sink({piece.data(), static_cast<size_t>(n)});
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Device::CopyBox(DeviceAddress to, std::span<const int64_t> to_dims, DeviceAddress from,
                             std::span<const int64_t> from_dims, std::span<const int64_t> box,
                             int element_bytes) {
  absl::Status status;
  ForEachRun(to_dims, from_dims, box, element_bytes,
             [&](int64_t to_byte, int64_t from_byte, int64_t bytes) {
               if (status.ok()) status = Copy(to + to_byte, from + from_byte, bytes);
             });
  return status;
}

void ForEachRun(std::span<const int64_t> to_dims, std::span<const int64_t> from_dims,
                std::span<const int64_t> box, int element_bytes,
                absl::FunctionRef<void(int64_t to, int64_t from, int64_t bytes)> copy) {
  if (std::find(box.begin(), box.end(), 0) != box.end()) return;
  size_t outer = box.size();  // the axes before this one are walked
  int64_t run = element_bytes;
  while (outer > 0) {
    run *= box[--outer];
    if (box[outer] != to_dims[outer] || box[outer] != from_dims[outer]) break;
  }
  std::vector<int64_t> index(outer);
  while (true) {
    int64_t to = 0, from = 0;
    for (size_t i = 0; i < box.size(); ++i) {
      to = to * to_dims[i] + (i < outer ? index[i] : 0);
      from = from * from_dims[i] + (i < outer ? index[i] : 0);
    }
    copy(to * element_bytes, from * element_bytes, run);
    size_t axis = outer;
    while (axis > 0 && ++index[axis - 1] == box[axis - 1]) index[--axis] = 0;
    if (axis == 0) return;
  }
}

}  // namespace outboard::runtime
