"""The device of the session. There is one: tensors are where their session is; a `device` argument changes nothing."""
from __future__ import annotations

import functools

from outboard import _core


class DeviceHandle:
    """One device by its name, such as "CPU"."""

    def __init__(self, name: str):
        self.device = name

    def synchronize(self) -> None:
        """Waits until all that was sent is done. Raises what failed since the last time."""
        _core.synchronize()

    def __repr__(self) -> str:
        return f"<Device {self.device}>"


class _Device:
    """`Device.DEFAULT` is the kind of the session's device; `Device["CPU"].synchronize()` waits for all that was sent."""

    @property
    def DEFAULT(self) -> str:
        """The kind of the session's device, "CPU" before there is a session."""
        return self.canonicalize(_core.device_description().split(":")[0] or "CPU")

    def canonicalize(self, device: str | None) -> str:
        """A device's name in capitals, without the number 0; of None the default."""
        return self.DEFAULT if device is None else device.upper().removesuffix(":0")

    def __repr__(self) -> str:
        return f"<Device, DEFAULT: {self.DEFAULT}>"

    @functools.cache
    def _handle(self, name: str) -> DeviceHandle:
        return DeviceHandle(name)

    def __getitem__(self, device: str) -> DeviceHandle:
        return self._handle(self.canonicalize(device))

    @property
    def default(self) -> DeviceHandle:
        """The session's device."""
        return self[self.DEFAULT]


Device = _Device()
