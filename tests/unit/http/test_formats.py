"""Which format a media type means."""

import pytest

from penstock.http.errors import ApiError
from penstock.http.formats import Format, format_of_accept, format_of_content


@pytest.mark.parametrize(
    ("media", "format"),
    [
        ("application/json", Format.BASE64),
        ("application/json; charset=utf-8", Format.BASE64),
        ("APPLICATION/JSON; Value=Text", Format.TEXT),
        ('application/json; charset=utf-8; value="json"', Format.JSON),
        ("application/vnd.penstock.avro+json", Format.AVRO),
        ("application/vnd.kafka.binary.v2+json", Format.BASE64),
        ("application/vnd.kafka.jsonschema.v2+json", Format.JSONSCHEMA),
        ("application/vnd.kafka.v2+json", Format.BASE64),
    ],
)
def test_a_media_type_means_a_format(media: str, format: Format) -> None:
    assert format_of_content(media) is format
    assert format_of_accept(media) is format


@pytest.mark.parametrize("media", ["text/xml", "application/json; value=xml", "application/vnd.kafka.xml.v2+json"])
def test_others_are_refused_with_the_fitting_status(media: str) -> None:
    with pytest.raises(ApiError) as refused:
        format_of_content(media)
    assert refused.value.status == 415
    with pytest.raises(ApiError) as refused:
        format_of_accept(media)
    assert refused.value.status == 406


def test_the_first_acceptable_one_counts() -> None:
    assert format_of_accept("text/xml, application/json; value=text, */*") is Format.TEXT
    assert format_of_accept(None, Format.JSON) is Format.JSON
    assert format_of_accept("*/*", Format.JSON) is Format.JSON
    assert format_of_accept("text/html,application/xhtml+xml") is Format.BASE64
