"""The tolerations of a pod, read once. Pure."""

from plimsoll.kube.models import Pod, Taint


class Tolerations:
    """A pod's tolerations; a look-up costs the same however many there are."""

    def __init__(self, pod: Pod) -> None:
        """Read them from the pod."""
        given = pod.spec.tolerations or ()
        self._of_any_value = {(one.key or "", one.effect or "") for one in given if one.operator == "Exists"}
        # Operators newer than Equal (Lt, Gt: alpha) tolerate nothing here. Such a pod waits, but is never misplaced.
        self._of_value = {
            (one.key or "", one.effect or "", one.value or "")
            for one in given
            if one.operator in (None, "", "Equal")
        }

    def tolerate(self, taint: Taint) -> bool:
        """Whether one of them tolerates a taint; a toleration without key or effect tolerates any."""
        return any(
            (key, effect) in self._of_any_value or (key, effect, taint.value or "") in self._of_value
            for key in ("", taint.key)
            for effect in ("", taint.effect)
        )
