"""Reading PyTorch DCP's ``.metadata`` as torch wrote it, and refusing to run what somebody else wrote into one."""

from __future__ import annotations

import base64
import pickle  # noqa: TID251 - to write what an attacker would
import zlib
from pathlib import Path

import pytest
from tests.checkpoints.written_metadata import metadata_of

from everstep.checkpoints import dcp_metadata, saves

# By torch 2.15.0: dcp.save of {"w": arange(12) as 3x4, "b": 5 bfloat16 zeros, "step": 7, "opt": {"lr": 0.1}}, which
# made one file, `__0_0.distcp`, of 5,676 bytes.
BY_TORCH = zlib.decompress(
    base64.b85decode(
        b"c-nnaT~E|N6y0^ZTM#fLVB&*`iSYvxcU@rldQ?QgvI_xUOeA&MnQ|v|+uE5TkZAN_Nl506@z41m{14vg7Iqc14^8LxoO93pm~YmP"
        b"uU094)MFW^J~Sv7GUZ+-8EyE${KF*Xk!*CCB$P;^)kypD^Fq&l*I)FEni7&o=2GrU_X=o!ls{`Isk`r3B;s@r6OaRToqjt><AkM>"
        b"GhyJ9efZ8Gm?LLYHFv0$9fUEF3-cIPQ+?NhrJRKPlt>;&T8+5}Ou8XCi8E<X69oz@qm1gF-qq)rY1(bCx82v<yX_b6-1W}d_N&d#"
        b"8^k-M9N}0_`AkdgDNFEErmqZGd*+C^iesJSYO3Z#799$`Zz`BxGlzfHYsWz#n8acqIwhx6C{#_3Ja(m;c_i~x+0!uEr@}bgF|B|}"
        b"HR9!6m|H?!xOWcs&z*A5n1u%@QSIdd@C5zL7TjkhT@h~%F#RN!kSxi)zdVsl+~{4^;zTyWRKr_5WokSLNffcvy_`4LVD~h%poQ-Z"
        b"*ueLesvt?LTSz-I9MM-Ea7t?8GR<a0+3}!HmEco^I;zU^cn57h{qK?nJY?boE9q)A?iMv{MnOE#oJd)SOLD~Agh((jx9K)>K|e7S"
        b"=A*$4P_>Xn2MB5ZvN8|e7ft*CTd<E#;A0W+fdWGe1b+i<*mp|6hKGEO_j43^v$a2XtpTrhGpjOLu!j0+?wy(6*wE;P${uvd<rJ@w"
        b"sXpYMR--$y;Kw_r85icpKG&)uySNIrs!>0oJjJEL^|S@SrWx*|c|wEL<z=tFz*bi3t<`2w_ZC)G>q}&D(etP`N60b~a6PFZbd=qV"
        b"X@;Z0+krE*k60@5Yg(OaG#gEfHGTsIJipr"
    )
)
FILE, SIZE = "__0_0.distcp", 5676


def test_what_torch_wrote_tells_files_and_their_sizes() -> None:
    assert dcp_metadata.files(BY_TORCH) == {FILE: SIZE}
    assert saves.missing_of_dcp(BY_TORCH, {FILE: SIZE}) == []
    assert saves.missing_of_dcp(BY_TORCH, {}) == [f"{FILE} is missing"]
    assert saves.missing_of_dcp(BY_TORCH, {FILE: SIZE - 1}) == [f"{FILE} is cut off: {SIZE - 1} of {SIZE} bytes"]


@pytest.mark.parametrize("torn", [b"", b"x", BY_TORCH[:-1], BY_TORCH[:900], pickle.dumps({"storage_data": {}})])
def test_what_is_torn_or_is_something_else_is_refused(torn: bytes) -> None:
    with pytest.raises(ValueError):
        dcp_metadata.files(torn)
    assert saves.missing_of_dcp(torn, {FILE: SIZE})[0].startswith(".metadata is torn (")


def test_the_largest_end_in_a_file_counts() -> None:
    assert dcp_metadata.files(metadata_of([("a", 0, 10), ("b", 7, 1), ("a", 10, 5), ("a", 3, 1)])) == {"a": 15, "b": 8}


class Command:
    """Pickles as a call of `Path.touch`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def test_nothing_in_it_is_run(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    body = pickle.dumps(Command(ran))
    with pytest.raises(ValueError):
        dcp_metadata.files(body)
    assert not ran.exists()
    pickle.loads(body)  # noqa: S301 - shows that the trap works
    assert ran.exists(), "an ordinary unpickling runs it"
