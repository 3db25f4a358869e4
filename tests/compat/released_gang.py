"""Two members of a gang on two machines: the released harness gathers, saves one checkpoint in shards, and ends."""

import pathlib

import determined as det
from determined import core


def main() -> None:
    info = det.get_cluster_info()
    assert info is not None and info.trial is not None
    size = len(info.container_addrs)
    distributed = core.DistributedContext(
        rank=info.container_rank,
        size=size,
        local_rank=0,
        local_size=1,
        cross_rank=info.container_rank,
        cross_size=size,
        chief_ip=info.container_addrs[0],
    )
    with core.init(distributed=distributed, tensorboard_mode=core.TensorboardMode.MANUAL) as context:
        ranks = context.distributed.allgather(info.container_rank)
        assert sorted(ranks) == [0, 1], ranks
        pathlib.Path("shard").mkdir()
        (pathlib.Path("shard") / f"rank{info.container_rank}").write_text("mine")
        saved = context.checkpoint.upload("shard", metadata={"steps_completed": 1}, shard=True)
        if info.container_rank == 0:
            context.train.report_validation_metrics(steps_completed=1, metrics={"loss": 0.5})
        print(f"rank {info.container_rank} of {size} saved {saved}", flush=True)


if __name__ == "__main__":
    main()
