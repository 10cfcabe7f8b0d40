// Streams and events.
#include "tests/gpu/driver/entry.h"

using namespace outboard::fake_cuda;  // NOLINT: entry points are C

FAKE_API cuStreamCreate(void** stream, unsigned flags) {
  FAKE_READY();
  if (stream == nullptr || flags > 1) return kInvalidValue;
  *stream = FakeDevice::Get().AddStream((flags & 1) != 0);
  return kSuccess;
}
FAKE_API cuStreamCreateWithPriority(void** stream, unsigned flags, int priority) { return cuStreamCreate(stream, flags); }
FAKE_API cuStreamDestroy_v2(void* handle) {
  FAKE_READY();
  FakeStream* stream = FakeDevice::Get().StreamOf(handle);
  return stream == nullptr ? kInvalidHandle : FakeDevice::Get().RemoveStream(stream);
}
FAKE_API cuStreamSynchronize(void* handle) {
  FAKE_READY();
  FakeStream* stream = FakeDevice::Get().StreamOf(handle);
  if (stream == nullptr) return kInvalidHandle;
  if (stream->capture != nullptr) return kCaptureUnsupported;
  return FakeDevice::Get().WaitStream(stream);
}
FAKE_API cuStreamQuery(void* handle) {
  FAKE_READY();
  FakeStream* stream = FakeDevice::Get().StreamOf(handle);
  if (stream == nullptr) return kInvalidHandle;
  return FakeDevice::Get().StreamIdle(stream) ? kSuccess : kNotReady;
}
FAKE_API cuStreamWaitEvent(void* handle, void* event_handle, unsigned flags) {
  FAKE_READY();
  FakeStream* stream = FakeDevice::Get().StreamOf(handle);
  auto* event = static_cast<FakeEvent*>(event_handle);
  if (stream == nullptr || !FakeDevice::Get().Owns(event)) return kInvalidHandle;
  GraphNode work;
  work.kind = GraphNode::kWait;
  work.event = event;
  return FakeDevice::Get().Enqueue(stream, std::move(work));
}
FAKE_API cuLaunchHostFunc(void* handle, void (*function)(void*), void* data) {
  FAKE_READY();
  FakeStream* stream = FakeDevice::Get().StreamOf(handle);
  if (stream == nullptr) return kInvalidHandle;
  GraphNode work;
  work.kind = GraphNode::kHost;
  work.host = [function, data] { function(data); };
  return FakeDevice::Get().Enqueue(stream, std::move(work));
}
FAKE_API cuStreamAddCallback(void* handle, void (*callback)(void*, int, void*), void* data, unsigned flags) {
  FAKE_READY();
  FakeStream* stream = FakeDevice::Get().StreamOf(handle);
  if (stream == nullptr) return kInvalidHandle;
  GraphNode work;
  work.kind = GraphNode::kHost;
  work.host = [callback, handle, data] { callback(handle, kSuccess, data); };
  return FakeDevice::Get().Enqueue(stream, std::move(work));
}

FAKE_API cuEventCreate(void** event, unsigned flags) {
  FAKE_READY();
  auto created = std::make_unique<FakeEvent>();
  created->timed = (flags & 2) == 0;
  *event = FakeDevice::Get().Own(std::move(created));
  return kSuccess;
}
FAKE_API cuEventDestroy_v2(void* event) {
  FAKE_READY();
  return FakeDevice::Get().Drop(static_cast<FakeEvent*>(event)) ? kSuccess : kInvalidHandle;
}
FAKE_API cuEventRecord(void* handle, void* stream_handle) {
  FAKE_READY();
  FakeStream* stream = FakeDevice::Get().StreamOf(stream_handle);
  auto* event = static_cast<FakeEvent*>(handle);
  if (stream == nullptr || !FakeDevice::Get().Owns(event)) return kInvalidHandle;
  GraphNode work;
  work.kind = GraphNode::kRecord;
  work.event = event;
  return FakeDevice::Get().Enqueue(stream, std::move(work));
}
FAKE_API cuEventRecordWithFlags(void* handle, void* stream, unsigned flags) { return cuEventRecord(handle, stream); }
FAKE_API cuEventQuery(void* handle) {
  FAKE_READY();
  auto* event = static_cast<FakeEvent*>(handle);
  FakeDevice& device = FakeDevice::Get();
  if (!device.Owns(event)) return kInvalidHandle;
  std::lock_guard<std::mutex> lock(device.mutex());
  return event->completed >= event->recorded ? kSuccess : kNotReady;
}
FAKE_API cuEventSynchronize(void* handle) {
  FAKE_READY();
  auto* event = static_cast<FakeEvent*>(handle);
  if (!FakeDevice::Get().Owns(event)) return kInvalidHandle;
  return FakeDevice::Get().WaitEvent(event);
}
FAKE_API cuEventElapsedTime(float* milliseconds, void* from, void* to) {
  FAKE_READY();
  auto* first = static_cast<FakeEvent*>(from);
  auto* last = static_cast<FakeEvent*>(to);
  FakeDevice& device = FakeDevice::Get();
  if (!device.Owns(first) || !device.Owns(last)) return kInvalidHandle;
  std::lock_guard<std::mutex> lock(device.mutex());
  if (!first->timed || !last->timed || first->recorded == 0 || last->recorded == 0) return kInvalidHandle;
  if (first->completed < first->recorded || last->completed < last->recorded) return kNotReady;
  *milliseconds = static_cast<float>(last->time_ms - first->time_ms);
  return kSuccess;
}
FAKE_API cuEventElapsedTime_v2(float* milliseconds, void* from, void* to) { return cuEventElapsedTime(milliseconds, from, to); }
