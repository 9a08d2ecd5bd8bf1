"""Schemas of the two custom resources, JobSet v1alpha2 and CheckpointConfiguration v1, as their CRDs declare them.

`{"$ref": "V1…"}` points to a built-in type, which only `http.schemas` can resolve.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def _string(description: str = "", **more: Any) -> Schema:
    return {"type": "string", "description": description, **more}


def _integer(description: str = "", **more: Any) -> Schema:
    return {"type": "integer", "format": "int32", "description": description, **more}


def _boolean(description: str = "", **more: Any) -> Schema:
    return {"type": "boolean", "description": description, **more}


def _object(description: str, **properties: Schema) -> Schema:
    return {"type": "object", "description": description, "properties": properties}


def _array(items: Schema, description: str = "", **more: Any) -> Schema:
    return {"type": "array", "description": description, "items": items, **more}


def _reference(name: str) -> Schema:
    return {"$ref": name}


_CONDITIONS = _array(_reference("V1Condition"), "Observations of the object's state.")

_REPLICATED_JOB = _object(
    "A template of Jobs, and how many of it are created.",
    name=_string("Name of the entry, part of the names of its Jobs."),
    groupName=_string("Group of replicated jobs that this one counts in.", default="default"),
    replicas=_integer("Number of Jobs created from the template.", default=1, minimum=0),
    template=_reference("V1JobTemplateSpec"),
    dependsOn=_array(
        _object(
            "A replicated job that has to reach a status first.",
            name=_string(),
            status=_string(enum=["Ready", "Complete"]),
        ),
        "Replicated jobs that start before this one.",
    ),
)

_FAILURE_RULE = _object(
    "What to do when a Job fails in the given way; the first rule that matches counts.",
    name=_string("Name of the rule."),
    action=_string(
        "What is done.",
        enum=[
            "FailJobSet",
            "RestartJobSet",
            "RestartJobSetAndIgnoreMaxRestarts",
            "RestartJob",
            "RestartJobAndIgnoreMaxRestarts",
        ],
    ),
    onJobFailureReasons=_array(_string(), "Reasons of the Job's failure; empty matches all."),
    onJobFailureMessagePatterns=_array(_string(), "Regular expressions for the message; empty matches all."),
    targetReplicatedJobs=_array(_string(), "Replicated jobs that the rule is for; empty means all."),
)

_VOLUME_CLAIM_POLICY = _object(
    "Claims made for the JobSet.",
    templates=_array(_reference("V1PersistentVolumeClaim")),
    retentionPolicy=_object("", whenDeleted=_string(enum=["Delete", "Retain"], default="Delete")),
)

_REPLICATED_JOB_STATUS = _object(
    "Counts of the Jobs of one replicated job.",
    name=_string(),
    ready=_integer(),
    succeeded=_integer(),
    failed=_integer(),
    active=_integer(),
    suspended=_integer(),
    jobRestarts=_array(_integer()),
    jobRestartsCountTowardsMax=_array(_integer()),
)

JOBSET: Schema = _object(
    "A set of Jobs that start, restart and end as one.",
    apiVersion=_string(),
    kind=_string(),
    metadata=_reference("V1ObjectMeta"),
    spec=_object(
        "What is wanted.",
        replicatedJobs=_array(_REPLICATED_JOB, "The Jobs of the set."),
        network=_object(
            "How its pods find each other.",
            enableDNSHostnames=_boolean("Give pods DNS names under the subdomain."),
            subdomain=_string("Name of the headless service; the JobSet's name by default."),
            publishNotReadyAddresses=_boolean("Publish addresses of pods that are not ready."),
        ),
        successPolicy=_object(
            "When the set counts as completed.",
            operator=_string(enum=["All", "Any"]),
            targetReplicatedJobs=_array(_string()),
        ),
        failurePolicy=_object(
            "What to do when a Job fails.",
            maxRestarts=_integer("How often the set may be restarted; 0 by default."),
            restartStrategy=_string(enum=["Recreate", "BlockingRecreate", "InPlaceRestart"], default="Recreate"),
            rules=_array(_FAILURE_RULE),
        ),
        startupPolicy=_object("", startupPolicyOrder=_string(enum=["AnyOrder", "InOrder"])),
        suspend=_boolean("Delete all pods and keep the set for later."),
        coordinator=_object("", replicatedJob=_string(), jobIndex=_integer(), podIndex=_integer()),
        managedBy=_string("The controller that looks after the set."),
        ttlSecondsAfterFinished=_integer("Delete the set this long after its end.", minimum=0),
        volumeClaimPolicies=_array(_VOLUME_CLAIM_POLICY),
    ),
    status=_object(
        "What was seen.",
        conditions=_CONDITIONS,
        restarts=_integer(),
        restartsCountTowardsMax=_integer(),
        terminalState=_string(),
        replicatedJobsStatus=_array(_REPLICATED_JOB_STATUS),
        individualJobsStatus=_array({"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
        previousInPlaceRestartAttempt=_integer(),
        currentInPlaceRestartAttempt=_integer(),
    ),
)

CHECKPOINT_CONFIGURATION: Schema = _object(
    "Multi-tier checkpointing on the nodes that it selects.",
    apiVersion=_string(),
    kind=_string(),
    metadata=_reference("V1ObjectMeta"),
    spec=_object(
        "What is wanted.",
        cloudStorageBucketName=_string("Bucket for backups, without gs://."),
        nodeSelector={
            "type": "object",
            "description": "Nodes that get the driver.",
            "additionalProperties": {"type": "string"},
        },
        tolerations=_array(_reference("V1Toleration")),
        inMemoryVolumeSize=_string("Size of a node's RAM disk, a quantity such as 200Gi."),
        csiEphemeralLimit=_string("Ephemeral storage limit of the driver."),
        gcsFuseMountOptions=_array(_string(), "Mount options of the bucket."),
        enableExternalJaxProcessIds=_boolean(),
    ),
    status=_object("", instanceHandle=_string(), error=_string()),
)

_LABELS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
_TEMPLATE_METADATA = _object("", labels=_LABELS, annotations=_LABELS)
_CONTAINER = _object(
    "",
    name=_string(),
    image=_string(),
    command=_array(_string()),
    args=_array(_string()),
    workingDir=_string(),
    env=_array(_object("", name=_string(), value=_string(), valueFrom=_object(""))),
    volumeMounts=_array(_object("", name=_string(), mountPath=_string(), readOnly=_boolean())),
)
# The part of the built-in types that people get wrong in a JobSet: numbers where text is wanted, and the reverse.
_KNOWN_TYPES: dict[str, Schema] = {
    "V1JobTemplateSpec": _object(
        "",
        metadata=_TEMPLATE_METADATA,
        spec=_object(
            "",
            parallelism=_integer(),
            completions=_integer(),
            backoffLimit=_integer(),
            completionMode=_string(),
            suspend=_boolean(),
            podReplacementPolicy=_string(),
            activeDeadlineSeconds=_integer(),
            template=_object(
                "",
                metadata=_TEMPLATE_METADATA,
                spec=_object(
                    "",
                    restartPolicy=_string(),
                    priorityClassName=_string(),
                    serviceAccountName=_string(),
                    terminationGracePeriodSeconds=_integer(),
                    nodeSelector=_LABELS,
                    hostNetwork=_boolean(),
                    initContainers=_array(_CONTAINER),
                    containers=_array(_CONTAINER),
                    tolerations=_array(
                        _object(
                            "",
                            key=_string(),
                            operator=_string(),
                            value=_string(),
                            effect=_string(),
                            tolerationSeconds=_integer(),
                        )
                    ),
                    volumes=_array(_object("", name=_string())),
                ),
            ),
        ),
    ),
}

CUSTOM_SCHEMAS: dict[str, Schema] = {"jobsets": JOBSET, "checkpointconfigurations": CHECKPOINT_CONFIGURATION}


def prune(value: Any, schema: Schema) -> None:
    """Removes, in place, fields that the schema does not know, as the API server does for custom resources."""
    if schema.get("x-kubernetes-preserve-unknown-fields") or "$ref" in schema:
        return
    if isinstance(value, dict) and "properties" in schema:
        for key in [key for key in value if key not in schema["properties"]]:
            del value[key]
        for key, item in value.items():
            prune(item, schema["properties"][key])
    elif isinstance(value, list) and "items" in schema:
        for item in value:
            prune(item, schema["items"])


_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


def type_errors(value: Any, schema: Schema, path: str) -> list[tuple[str, str]]:
    """(field, message) for every value of a wrong type or outside its enumeration or minimum."""
    schema = _KNOWN_TYPES.get(schema.get("$ref", ""), schema)
    expected = schema.get("type")
    if expected is None or value is None:
        return []
    if not isinstance(value, _PYTHON_TYPES[expected]) or (expected == "integer" and isinstance(value, bool)):
        return [
            (
                path,
                f'Invalid value: "{_type_name(value)}": {path} in body must be of type {expected}: '
                f'"{_type_name(value)}"',
            )
        ]
    if "enum" in schema and value not in schema["enum"]:
        allowed = ", ".join(f'"{item}"' for item in schema["enum"])
        return [(path, f'Unsupported value: "{value}": supported values: {allowed}')]
    if "minimum" in schema and value < schema["minimum"]:
        bound = schema["minimum"]
        return [(path, f"Invalid value: {value}: {path} in body should be greater than or equal to {bound}")]
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", {})
        return [
            found
            for key, item in value.items()
            for found in type_errors(item, properties.get(key, others), f"{path}.{key}" if path else key)
        ]
    if isinstance(value, list) and "items" in schema:
        return [
            found
            for index, item in enumerate(value)
            for found in type_errors(item, schema["items"], f"{path}[{index}]")
        ]
    return []


def _type_name(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return next((name for name, types in _PYTHON_TYPES.items() if isinstance(value, types)), "number")
