"""What the registry refuses, with the codes that Confluent's clients know.

The first three digits of a code are the HTTP status. Every message says what is wrong; none shows a stack trace.
"""

SCHEMA_BYTES_MAX = 1 << 20


class RegistryError(Exception):
    def __init__(self, code: int, message: str, *, is_worth_another_try: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        # Nothing was done, and what was in the way passes by itself.
        self.is_worth_another_try = is_worth_another_try

    @property
    def status(self) -> int:
        return self.code // 100 if self.code >= 1000 else self.code


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(which: int | str | None = None) -> RegistryError:
    return RegistryError(40403, "Schema not found" if which is None else f"Schema {which} not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40404, f"Subject '{subject}' is soft-deleted already; permanent=true removes it for good.")


def subject_not_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40405, f"Subject '{subject}' has to be soft-deleted before it is removed for good.")


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        40406, f"Version {version} of subject '{subject}' is soft-deleted already; permanent=true removes it for good."
    )


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        40407, f"Version {version} of subject '{subject}' has to be soft-deleted before it is removed for good."
    )


def no_subject_config(subject: str | None) -> RegistryError:
    return RegistryError(40408, f"Subject '{subject}' has no compatibility level of its own.")


def no_subject_mode(subject: str | None) -> RegistryError:
    return RegistryError(40409, f"Subject '{subject}' has no mode of its own.")


def incompatible(subject: str, reasons: list[str]) -> RegistryError:
    return RegistryError(
        40901,
        f'The schema is incompatible with an earlier one of subject "{subject}", details: [{", ".join(reasons)}]',
    )


def invalid_schema(problem: str) -> RegistryError:
    return RegistryError(42201, f"Invalid schema: {problem}")


def invalid_version(version: object) -> RegistryError:
    return RegistryError(
        42202, f"The version '{version}' is not valid: it is a number from 1 to 2147483647, or 'latest'."
    )


def invalid_level(level: object) -> RegistryError:
    return RegistryError(
        42203,
        f"The compatibility level '{level}' is not valid: it is one of NONE, BACKWARD, FORWARD, FULL, "
        "BACKWARD_TRANSITIVE, FORWARD_TRANSITIVE, FULL_TRANSITIVE.",
    )


def invalid_mode(mode: object) -> RegistryError:
    return RegistryError(
        42204, f"The mode '{mode}' is not valid: it is one of READWRITE, READONLY, READONLY_OVERRIDE, IMPORT."
    )


def not_permitted(problem: str) -> RegistryError:
    return RegistryError(42205, problem)


def read_only(subject: str | None) -> RegistryError:
    return not_permitted(f"Subject '{subject}' is in read-only mode.")


def reference_exists(subject: str, version: int) -> RegistryError:
    return RegistryError(42206, f"Version {version} of subject '{subject}' is referenced by other schemas.")


def id_mismatch(wanted: int, existing: int) -> RegistryError:
    return RegistryError(42207, f"The schema is registered with id {existing}, not {wanted}.")


def invalid_subject(subject: str) -> RegistryError:
    return RegistryError(42208, f"The subject '{subject}' is not a valid name.")


def schema_too_large(size: int) -> RegistryError:
    return RegistryError(42209, f"The schema has {size} bytes; at most {SCHEMA_BYTES_MAX} are accepted.")


def invalid_rule_set(problem: str) -> RegistryError:
    return RegistryError(42210, f"The rule set is not valid: {problem}")


def context_not_empty(context: str) -> RegistryError:
    return RegistryError(42211, f"The context '{context}' still has subjects.")


def store_failed(problem: str) -> RegistryError:
    return RegistryError(50001, f"The schemas topic could not be used: {problem}")


def timed_out(problem: str) -> RegistryError:
    return RegistryError(50002, f"{problem} took too long; it may have been done nevertheless.")


def forwarding_failed(problem: str, *, was_sent: bool) -> RegistryError:
    return RegistryError(
        50003, f"The leader of the registry could not be asked: {problem}", is_worth_another_try=not was_sent
    )


NO_LEADER = 50004


def no_leader() -> RegistryError:
    return RegistryError(
        NO_LEADER, "The registry has no leader at the moment; try again in a few seconds.", is_worth_another_try=True
    )
