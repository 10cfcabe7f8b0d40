#include "client/session/core/outgoing_items.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/limits.h"
#include "wire/limits.h"

namespace outboard::session {

namespace {

// Whether it can travel in a string field: no overlong forms, no surrogates.
bool IsUtf8(std::string_view text) {
  constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
  for (size_t i = 0; i < text.size(); ++i) {
    const auto first = static_cast<uint8_t>(text[i]);
    if (first < 0x80) continue;
    const size_t more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
    if (first < 0xc0 || first >= 0xf8 || text.size() - i <= more) return false;
    uint32_t code = first & (0x3fu >> more);
    for (const char c : text.substr(i + 1, more)) {
      if ((c & 0xc0) != 0x80) return false;
      code = code << 6 | (c & 0x3fu);
    }
    if (code < kLeast[more] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
    i += more;
  }
  return true;
}

absl::Status CheckIndices(std::string_view what, const std::vector<uint32_t>& indices,
                          size_t count) {
  for (const uint32_t index : indices)
    if (index >= count)
      return absl::InvalidArgumentError(
          absl::StrCat(std::string(what), " index ", index, " of ", count));
  return absl::OkStatus();
}

absl::Status CheckRepeat(const RunRequest& request) {
  if (request.repeat <= 1) {
    if (request.carry.empty() && request.stack.empty() && !request.cursor) return absl::OkStatus();
    return absl::InvalidArgumentError("a Run that is not repeated has no carry, stack or cursor");
  }
  for (const Carry& carry : request.carry)
    if (carry.output >= request.outputs.size() || carry.input >= request.inputs.size())
      return absl::InvalidArgumentError(absl::StrCat("carries output ", carry.output, " to input ",
                                                     carry.input, " of ", request.outputs.size(),
                                                     " and ", request.inputs.size()));
  return CheckIndices("stack", request.stack, request.outputs.size());
}

absl::Status CheckRun(const RunRequest& request) {
  if (request.inputs.size() + request.outputs.size() > wire::kRunHandlesMax)
    return absl::ResourceExhaustedError(
        absl::StrCat("a Run with ", request.inputs.size(), " inputs and ", request.outputs.size(),
                     " outputs; limit ", wire::kRunHandlesMax, " together"));
  if (request.graph == nullptr || request.graph->size() > limits::kGraphBytesMax)
    return absl::ResourceExhaustedError(absl::StrCat("a graph of ",
                                                     request.graph ? request.graph->size() : 0,
                                                     " bytes; limit ", limits::kGraphBytesMax));
  for (const Binding& binding : request.bindings)
    if (binding.slot < 0 || binding.slot >= limits::kVarSlotMax)
      return absl::InvalidArgumentError(absl::StrCat("a value for VAR ", binding.slot,
                                                     "; slots are 0..", limits::kVarSlotMax - 1));
  absl::Status status = CheckIndices("donate", request.donate, request.inputs.size());
  status.Update(CheckIndices("fetch", request.fetch, request.outputs.size()));
  status.Update(CheckRepeat(request));
  // Written by KeptHandles, which knows the names of the handles.
  for (const Rekept& rekept : request.rekept)
    if (rekept.output >= request.outputs.size())
      status.Update(absl::InvalidArgumentError(
          absl::StrCat("keeps output ", rekept.output, " of ", request.outputs.size())));
  return status;
}

}  // namespace

absl::StatusOr<proto::ClientItem> RunItem(const RunRequest& request) {
  if (absl::Status status = CheckRun(request); !status.ok()) return status;
  proto::ClientItem item;
  proto::Run& run = *item.mutable_run();
  run.set_graph_id(request.graph_id.data(), request.graph_id.size());
  run.mutable_inputs()->Add(request.inputs.begin(), request.inputs.end());
  run.mutable_outputs()->Add(request.outputs.begin(), request.outputs.end());
  run.mutable_donate()->Add(request.donate.begin(), request.donate.end());
  run.mutable_fetch()->Add(request.fetch.begin(), request.fetch.end());
  for (const Binding& binding : request.bindings) {
    proto::Binding& out = *run.add_bindings();
    out.set_slot(static_cast<uint32_t>(binding.slot));
    out.set_value(binding.value);
  }
  if (request.repeat > 1) run.set_repeat(request.repeat);
  for (const Carry& carry : request.carry) {
    proto::Carry& out = *run.add_carry();
    out.set_output(carry.output);
    out.set_input(carry.input);
  }
  run.mutable_stack()->Add(request.stack.begin(), request.stack.end());
  if (request.cursor) {
    run.mutable_cursor()->set_slot(request.cursor->slot);
    run.mutable_cursor()->set_stride(request.cursor->stride);
  }
  return item;
}

absl::Status CheckDims(std::span<const int64_t> dims) {
  for (const int64_t dim : dims)
    if (dim < 0) return absl::InvalidArgumentError(absl::StrCat("Put of a dimension of ", dim));
  return absl::OkStatus();
}

proto::ClientItem PutItem(uint64_t handle, uint32_t dtype, std::span<const int64_t> dims,
                          uint64_t total_bytes) {
  proto::ClientItem item;
  proto::Put& put = *item.mutable_put();
  put.set_handle(handle);
  put.set_dtype(dtype);
  for (const int64_t dim : dims) put.add_dims(static_cast<uint64_t>(dim));
  put.set_total_bytes(total_bytes);
  return item;
}

absl::StatusOr<proto::ClientItem> FetchItem(std::span<const uint64_t> handles) {
  if (handles.size() > wire::kRunHandlesMax)
    return absl::ResourceExhaustedError(
        absl::StrCat("a Fetch of ", handles.size(), " values; limit ", wire::kRunHandlesMax));
  proto::ClientItem item;
  item.mutable_fetch()->mutable_handles()->Add(handles.begin(), handles.end());
  return item;
}

namespace {

// `item`, with the names of so many arrays, unless they are too long together for one piece.
absl::StatusOr<proto::ClientItem> WithNames(proto::ClientItem item, size_t arrays) {
  if (const size_t bytes = item.ByteSizeLong(); bytes > wire::kPieceBytesMax)
    return absl::ResourceExhaustedError(absl::StrCat("the names of ", arrays, " arrays take ",
                                                     bytes, " bytes; limit ",
                                                     wire::kPieceBytesMax));
  return item;
}

}  // namespace

absl::StatusOr<proto::ClientItem> SaveItem(std::string_view name,
                                           std::span<const SaveEntry> entries) {
  if (!IsUtf8(name)) return absl::InvalidArgumentError("a checkpoint's name is not UTF-8");
  proto::ClientItem item;
  proto::Save& save = *item.mutable_save();
  save.set_name(name.data(), name.size());
  for (const SaveEntry& entry : entries) {
    if (entry.name.size() > wire::kEntryNameBytesMax)
      return absl::InvalidArgumentError(absl::StrCat("an array's name of ", entry.name.size(),
                                                     " bytes; limit ", wire::kEntryNameBytesMax));
    if (!IsUtf8(entry.name)) return absl::InvalidArgumentError("an array's name is not UTF-8");
    proto::Save::Entry& out = *save.add_entries();
    out.set_name(entry.name);
    out.set_handle(entry.handle);
  }
  return WithNames(std::move(item), entries.size());
}

absl::StatusOr<proto::ClientItem> KeepItem(std::span<const KeepEntry> entries) {
  if (entries.size() > wire::kRunHandlesMax)
    return absl::ResourceExhaustedError(absl::StrCat("names for ", entries.size(),
                                                     " arrays; limit ", wire::kRunHandlesMax));
  std::set<std::string_view> names;
  proto::ClientItem item;
  proto::Keep& keep = *item.mutable_keep();
  for (const KeepEntry& entry : entries) {
    if (entry.name.empty() || entry.name.size() > wire::kEntryNameBytesMax)
      return absl::InvalidArgumentError(absl::StrCat("an array's name of ", entry.name.size(),
                                                     " bytes; from 1 to ",
                                                     wire::kEntryNameBytesMax));
    if (!IsUtf8(entry.name)) return absl::InvalidArgumentError("an array's name is not UTF-8");
    if (!names.insert(entry.name).second)
      return absl::InvalidArgumentError(absl::StrCat("two arrays are named ", entry.name));
    proto::Keep::Entry& out = *keep.add_entries();
    out.set_id(entry.id);
    out.set_name(entry.name);
    out.set_handle(entry.handle);
  }
  return WithNames(std::move(item), entries.size());
}

namespace {
constexpr size_t kItemOverheadBytes = 16;  // tag, length and seq around an item, at most
}  // namespace

void FramePacker::Restart(uint64_t epoch) {
  epoch_ = epoch;
  frames_.clear();
}

void FramePacker::Add(proto::ClientItem item) {
  const size_t bytes = item.ByteSizeLong() + kItemOverheadBytes;
  if (frames_.empty() || frame_bytes_ + bytes > wire::kFrameBytesMax ||
      frames_.back().items_size() >= static_cast<int>(wire::kFrameItemsMax)) {
    frames_.emplace_back().set_epoch(epoch_);
    frame_bytes_ = kItemOverheadBytes;
  }
  frames_.back().add_items()->Swap(&item);
  frame_bytes_ += bytes;
}

void FramePacker::AddGraph(const std::string& id, const std::string& bytes) {
  size_t at = 0;
  do {
    const size_t length = std::min(bytes.size() - at, wire::kPieceBytesMax);
    proto::ClientItem item;
    proto::Graph& graph = *item.mutable_graph();
    graph.set_id(id);
    graph.set_total_bytes(bytes.size());
    graph.set_offset(at);
    graph.set_data(bytes.data() + at, length);
    Add(std::move(item));
    at += length;
  } while (at < bytes.size());
}

void FramePacker::AddPut(const proto::ClientItem& put, const std::string& bytes) {
  size_t at = 0;
  do {
    const size_t length = std::min(bytes.size() - at, wire::kPieceBytesMax);
    proto::ClientItem piece = put;
    piece.mutable_put()->set_offset(at);
    piece.mutable_put()->mutable_data()->assign(bytes, at, length);  // one copy
    Add(std::move(piece));
    at += length;
  } while (at < bytes.size());
}

std::vector<proto::ClientFrame> FramePacker::Take() { return std::exchange(frames_, {}); }

ResendBuffer::Entry& ResendBuffer::Add(Entry entry) {
  entry.seq = last_seq() + 1;
  put_bytes_ += entry.put_bytes();
  entries_.push_back(std::move(entry));
  return entries_.back();
}

void ResendBuffer::DropThrough(uint64_t seq) {
  for (; !entries_.empty() && dropped_seq_ < seq; ++dropped_seq_) {
    put_bytes_ -= entries_.front().put_bytes();
    entries_.pop_front();
  }
}

}  // namespace outboard::session
