// A compiled kernel, as the code that loads and runs it sees it: plain data, without types of the
// compiler.
//
// Calling: `symbol` of `object` is   void k(void* const* buffers, int64_t task_begin, int64_t
// task_end); buffers[i] is the memory of GLOBAL slot i, aligned to its element; buffers of
// different slots do not overlap. If the kernel reads VARs, buffers[buffer_count] points to their
// values, an array of i64 indexed by VAR slot; each value is within its VAR's range. The result is
// complete once [0, tasks) has been run, in any pieces, in any order, by any number of threads:
// each task writes its own elements, and the bits do not depend on how tasks are split. The object
// may call void* outboard_scratch(int64_t bytes): memory of the calling thread, aligned to a cache
// line, whose contents last until the kernel returns. An object that uses the processor's tile
// registers (AMX) first calls void outboard_tiles(); the loader resolves it by requesting them from
// the operating system, or refuses the object.
//
// The above holds for Form::kElfX86. For kOpenClC, `object` is source text with one kernel named
// `symbol`, launched as blocks[] groups of threads[] work-items each (in OpenCL's words, a global
// size of blocks * threads). Its arguments: a `__global uchar*` for each buffer slot 0 ..
// buffer_count - 1, in order, whatever the type of the elements; then, with `reads_vars`, a
// `__global const long*` with the VARs' values by slot. `tasks` is the number of blocks.
//
// For kPtx, `object` is PTX text for NVIDIA's GPUs with one `.visible .entry` named `symbol`,
// launched as a grid of blocks[] with threads[] threads each; `.maxntid` is threads[]. Parameters
// are `.u64`: for each buffer slot 0 .. buffer_count - 1, in order, the buffer's address in global
// memory; then, with `reads_vars`, that of the VARs' values, i64 by slot; then, for each of `maps`,
// 128 bytes, aligned to 64, that the driver makes of it and of its buffer's address
// (cuTensorMapEncodeTiled), constant for the grid. The text declares its shared memory itself, or
// at least a part of `shared_bytes`; the launch asks for the rest. It uses no local memory. `tasks`
// is the number of blocks that compute; those of the grid's last row beyond it leave at once.
//
// With `copies` above 1 (kPtx alone, compiler/copies.h), blocks[2] is `copies`, and the
// parameters are: one array of `copies` times buffer_count addresses, those of the first copy
// first; the VARs' address as above; for views one array of `copies` times maps.size() pieces of
// 128 bytes, aligned to 64. `flops`, `bytes` and `tasks` are those of all copies.
//
// For kElfAmdgpu, `object` is a relocatable object for AMD's GPUs (amdgcn-amd-amdhsa), which lld
// links to a code object. Its parameters are those of kPtx.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace outboard {

// A view of a buffer, of two to four dimensions, of which boxes are copied to and from shared
// memory by the tensor memory accelerator of NVIDIA's sm_90. Dimensions are innermost first; the
// first one is contiguous. Elements of a box that are outside of the view are read as zeros and not
// written.
struct MappedTensor {
  // kByte: an 8-bit float, of either type.
  enum class Element : uint8_t { kF16 = 0, kBF16 = 1, kF32 = 2, kByte = 3 };
  static constexpr Element kElementLast = Element::kByte;
  static constexpr int kRankMin = 2, kRankMax = 4;
  static constexpr int64_t kBoxMax = 256;        // elements of a box, along each dimension
  static constexpr int64_t kStrideAlign = 16;    // bytes; of the buffer's address, too
  static constexpr int64_t kSwizzleBytes = 128;  // a row of a box with a swizzle

  int32_t slot = 0;  // of the buffer, which starts with the view's first element
  Element element = Element::kF16;
  // Pieces of 16 bytes of each eight rows of 128 bytes are exchanged (swizzle of 128 bytes), so
  // that neither rows nor columns meet a bank twice.
  bool swizzled = false;
  std::vector<int64_t> dims;     // elements
  std::vector<int64_t> strides;  // bytes, from the second dimension on
  std::vector<int64_t> box;      // elements

  int element_bytes() const {
    if (element == Element::kByte) return 1;
    return element == Element::kF32 ? 4 : 2;
  }
  int rank() const { return static_cast<int>(dims.size()); }
  int64_t box_elements() const {
    int64_t elements = 1;
    for (const int64_t length : box) elements *= length;
    return elements;
  }
  // From the first byte of the view to behind its last one.
  int64_t span_bytes() const {
    int64_t bytes = dims.empty() ? 0 : dims[0] * element_bytes();
    for (size_t i = 1; i < dims.size(); ++i) bytes += (dims[i] - 1) * strides[i - 1];
    return bytes;
  }
  bool operator==(const MappedTensor&) const = default;
};

struct CompiledKernel {
  // The format of `object`, which decides how it is loaded and called.
  enum class Form : uint8_t {
    kElfX86 = 0,   // relocatable ELF64, x86-64, position independent
    kOpenClC = 1,  // source text
    kPtx = 2,      // assembler text for NVIDIA's GPUs
    kElfAmdgpu = 3,  // relocatable ELF64 for AMD's GPUs; no device loads it
  };

  // Of a launch with several copies: what every driver and device takes.
  static constexpr int kParameterBytesMax = 4096;
  static constexpr int kCopiesMax = kParameterBytesMax / 8;  // of one address each

  std::string object;  // in the format of `form`
  std::string symbol;
  int64_t tasks = 0;     // 0 where there is nothing to compute
  int buffer_count = 0;  // one past the largest GLOBAL slot
  // Estimates, for reports: arithmetic on floats, memory touched if every buffer is read or written
  // once.
  int64_t flops = 0;
  int64_t bytes = 0;
  Form form = Form::kElfX86;
  // Set for devices that run blocks of threads.
  std::array<int64_t, 3> blocks = {1, 1, 1};
  std::array<int64_t, 3> threads = {1, 1, 1};  // of one block
  int64_t shared_bytes = 0;                    // of one block
  bool reads_vars = false;
  std::vector<MappedTensor> maps;
  int copies = 1;
  // Plans that we chose and that turned out not to fit, with the reason: the kernel was compiled by
  // the next best one, and computes the same, perhaps in many times the time. For tests and for
  // reports; behind a compile process it is one text.
  std::vector<std::string> given_up;
};

}  // namespace outboard
